use super::*;
use crate::pace::Pace;

#[test]
fn the_queue_waits_as_is_told() {
    let told = Pace::Growing { failures: 3 }.next();
    assert_eq!(queue_config().waits.after(3), told);
}
