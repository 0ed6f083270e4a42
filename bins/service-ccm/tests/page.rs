//! Checks that the table of reasons in docs/reference/conditions.md is written from the code.

use std::path::Path;

use service_ccm::plan::reason::Reason;
use strum::VariantArray as _;

#[test]
fn the_table_of_reasons_is_current() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/conditions.md");
    let text = std::fs::read_to_string(page).expect("the page");
    for reason in Reason::VARIANTS {
        let line = format!(
            "| `{}` | `{}` | `{}` | {} |",
            reason.condition(),
            reason.status(),
            reason.as_str(),
            reason.meaning()
        );
        assert!(text.contains(&line), "docs/reference/conditions.md lacks this line:\n{line}");
    }
    let is_of_table = |line: &&str| {
        ["| `LoadBalancerProvisioning` |", "| `LoadBalancerServing` |"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let lines = text.lines().filter(is_of_table).count();
    assert_eq!(lines, Reason::VARIANTS.len(), "a line of the table has no reason in the code");
}
