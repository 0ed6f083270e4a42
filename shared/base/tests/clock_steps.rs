//! The wall clock is set while a process runs. It is one for the process, so this is one test.

use std::time::Duration;

use ccm_base::{
    At,
    clock::{Timeline, set_wall, wall},
};
use jiff::{SignedDuration, Timestamp};

#[test]
fn moments_go_on_and_their_texts_follow_the_wall_clock() {
    let timeline = Timeline::begin();
    for hours in [3, -5, 30_000, -30_000] {
        let before = timeline.now();
        set_wall(SignedDuration::from_hours(hours));
        let now = timeline.now();
        assert!(before <= now && now.since(before) < Duration::from_secs(10), "{hours}: {now:?}");

        let shown: Timestamp = now.to_string().parse().unwrap();
        let error = shown.duration_since(wall()).abs();
        assert!(error < SignedDuration::from_secs(10), "{hours}: {shown}, not {}", wall());
        assert_eq!(now.to_string().parse::<At>().unwrap().to_string(), now.to_string());
        let read: At = wall().to_string().parse().unwrap();
        for moment in [read, wall().into()] {
            let error = moment.since(now).max(now.since(moment));
            assert!(error < Duration::from_secs(10), "{hours}: {moment:?}, not {now:?}");
        }
    }
    // Adjustments that are smaller than the time between two readings may be.
    let shown = timeline.now().to_string();
    set_wall(SignedDuration::from_millis(900));
    let moment: At = shown.parse().unwrap();
    timeline.now();
    assert_eq!(moment.to_string(), shown);
}
