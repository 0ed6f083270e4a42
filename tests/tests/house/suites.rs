//! Every listed program has its own tests on a cluster.

use std::fs;

use ccm_runtime::programs;
use ccm_tests::cluster::repository;

/// Only the `main` of a target without a harness runs, and no part of a `Suite` can be omitted:
/// neither the work for which the program needs its rights, nor the story of its dashboard.
#[test]
fn every_program_has_a_suite() {
    let mut broken = Vec::new();
    for listing in programs::ALL {
        let binary = listing.identity.binary;
        let folder = repository().join("bins").join(binary);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if !manifest.contains("[[test]]\nname = \"world\"\nharness = false\n") {
            broken.push(format!("{binary}: Cargo.toml declares no test `world` without a harness"));
        }
        let main = ["tests/world.rs", "tests/world/main.rs"]
            .into_iter()
            .find_map(|path| fs::read_to_string(folder.join(path)).ok())
            .unwrap_or_default();
        let identity = format!("program: {},", binary.to_uppercase().replace('-', "_"));
        let calls = main.split("fn main()").nth(1).unwrap_or_default();
        if !calls.contains("suite::main(Suite {") || !calls.contains(&identity) {
            broken
                .push(format!("{binary}: the main of its test `world` runs no suite `{identity}`"));
        }
    }
    assert!(broken.is_empty(), "see docs/internal/testing.md:\n  {}", broken.join("\n  "));
}
