use super::*;

#[test]
fn the_queue_waits_as_is_told() {
    assert_eq!(queue_config().waits, RETRY);
}
