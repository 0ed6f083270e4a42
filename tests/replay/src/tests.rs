//! The records in the folders of the programs are tests.

use std::{fs, path::Path};

use ccm_controller::record::replay::folder;

use super::MACHINES;

#[test]
fn the_records_of_scenarios_are_replayed_without_a_difference() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bins");
    let folders = fs::read_dir(&programs).into_iter().flatten().flatten();
    let folders = folders.map(|program| program.path().join("tests/records"));
    let replayed = folders.map(|records| folder(&MACHINES.concat(), &records));
    let count: Result<Vec<usize>, String> = replayed.collect();
    let count = count.map(|counts| counts.iter().sum::<usize>());
    assert!(matches!(count, Ok(10..)), "{count:?}");
}
