//! docs/metrics.md is what the programs register, and says what a person needs.

use ccm_tests::{measured, metrics_page};

fn everything() -> anyhow::Result<Vec<measured::Family>> {
    let mut all = measured::of_program::<node_ccm::NodeCcm>()?;
    all.extend(measured::of_program::<lifecycle_ccm::LifecycleCcm>()?);
    let registry = ccm_providers::registry();
    for name in registry.names() {
        all.extend(measured::of_provider(registry.get(&name)?.as_ref())?);
    }
    Ok(all)
}

#[test]
fn the_page_is_current() {
    let path = ccm_tests::cluster::repository().join("docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let written = metrics_page::page().unwrap();
    assert!(page == written, "run `make docs` and commit docs/metrics.md");
}

#[test]
fn every_metric_is_explained() {
    for family in everything().unwrap() {
        let (name, meaning) = (&family.name, family.meaning());
        assert!(family.samples > 0, "{name} has no specimen");
        assert!(meaning.len() > 20 && meaning.ends_with('.'), "{name}: {meaning:?} says little");
        let own = name.starts_with("ccm_") || name.starts_with("openstack_");
        assert!(!own || family.stability() == "ALPHA", "{name} has no stability");
        // A histogram of something other than time says of what.
        assert!(
            family.kind != "histogram" || family.unit() != "number" || name.ends_with("_size"),
            "{name} has no unit"
        );
        assert!(!meaning.contains('|'), "{name}: {meaning:?} breaks the table");
    }
}

#[test]
fn no_name_is_used_twice() {
    let pages = [
        measured::page_of::<node_ccm::NodeCcm>().unwrap(),
        measured::page_of::<lifecycle_ccm::LifecycleCcm>().unwrap(),
    ];
    for page in pages {
        let mut names: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let all = names.len();
        assert!(all > 30, "{page}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{page}");
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let mut series: Vec<_> = lines.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), all, "{page}");
        for help in page.lines().filter(|line| line.starts_with("# HELP ")) {
            let own = help.contains(" ccm_") || help.contains("HELP kubernetes_");
            assert!(!own || help.contains(" [ALPHA] "), "no stability: {help}");
            assert!(help.ends_with('.') && !help.ends_with(".."), "{help}");
        }
    }
}

#[test]
fn every_open_label_is_in_use() {
    let all = everything().unwrap();
    for (label, _) in metrics_page::OPEN {
        let used = all.iter().any(|family| family.labels.contains_key(label));
        assert!(used, "no metric has the label {label}");
    }
}
