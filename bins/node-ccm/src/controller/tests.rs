use std::time::Duration;

use super::*;

#[test]
fn the_queue_waits_as_is_told() {
    let config = queue_config();
    assert_eq!((config.base, config.max), (Duration::from_secs(1), Duration::from_mins(1)));
}
