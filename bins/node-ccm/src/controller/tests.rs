use super::*;

/// Quirk 15 of docs/parity.md: upstream waits up to 1000 s.
#[test]
fn waits_double_from_a_second_to_a_minute() {
    let expect = [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (20, 60), (u32::MAX, 60)];
    for (failures, seconds) in expect {
        assert_eq!(retry_wait(failures), Duration::from_secs(seconds), "{failures} failures");
    }
    let config = queue_config();
    assert_eq!((config.base, config.max), (Duration::from_secs(1), Duration::from_mins(1)));
}
