//! A process that began before NTP set the clock: the times that it reads from others and leaves to others have the
//! right time, and its own moments go on as before.
//!
//! The wall clock is one for the process, so this is one test.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panic")]

use std::time::Duration;

use ccm_base::{
    At,
    clock::{self, Timeline},
};
use ccm_controller::{
    brake::{Brake, Budget, Limit, Window, approval::is_marked_at},
    handover,
};
use ccm_objects::instance_gone;
use ccm_runtime::leadership::LeaseAnnotations;
use jiff::{SignedDuration, Timestamp};

const MINUTE: Duration = Duration::from_mins(1);
const BUDGET: Budget = Budget { limit: Limit::Count(1), window: Duration::from_mins(10) };

/// Returns the time of the wall clock this many minutes from now, as a person writes it.
fn minutes_from_now(minutes: i64) -> String {
    (clock::wall() + SignedDuration::from_mins(minutes)).to_string()
}

/// Returns how far this text is from the wall clock's time this many minutes from now, in seconds.
fn error_of(text: &str, minutes: i64) -> i64 {
    let at: Timestamp = text.parse().expect(text);
    let expect: Timestamp = minutes_from_now(minutes).parse().expect("a time");
    at.duration_since(expect).as_secs().abs()
}

/// Returns the time of the only change that this Lease leaves to the next leader.
fn left(lease: &LeaseAnnotations) -> String {
    let text = lease.handed_over().found();
    let left: Vec<(String, String)> = serde_json::from_str(&text).expect(&text);
    left[0].0.clone()
}

#[tokio::test(start_paused = true)]
async fn the_wall_clock_is_set_while_the_process_runs() {
    let (timeline, lease) = (Timeline::begin(), LeaseAnnotations::default());
    for hours in [3, -5, 30_000] {
        let before = timeline.now();
        handover::keep(&lease, &Window::from_iter([(before - MINUTE, "early".into())]));
        clock::set_wall(SignedDuration::from_hours(hours));
        let now = timeline.now();
        assert!(now.since(before) < MINUTE && before <= now, "{hours}: moments do not jump");

        let is_approved = |minutes| is_marked_at(Some(&minutes_from_now(minutes)), None, now);
        assert!(is_approved(5), "{hours}: it is approved for five minutes");
        assert!(!is_approved(-5), "{hours}: the approval has ended");

        assert_eq!(error_of(&now.to_string(), 0), 0, "{hours}: what people read");
        let proof = instance_gone::value("by_id", now - MINUTE);
        assert_eq!(error_of(proof.split_once(' ').unwrap().1, -1), 0, "{hours}: {proof}");
        assert!(instance_gone::counts(&proof, now), "{hours}: {proof}");

        assert_eq!(
            error_of(&left(&lease), -1),
            0,
            "{hours}: what was left before, as it is renewed"
        );
        handover::keep(&lease, &Window::from_iter([(now - 2 * MINUTE, "late".into())]));
        assert_eq!(error_of(&left(&lease), -2), 0, "{hours}: what is left now");

        // Another process, whose clock was right from its beginning, has left this.
        let used = format!(r#"[["{}","other"]]"#, minutes_from_now(-9));
        let window: Window = serde_json::from_str(&used).unwrap();
        let mut brake = Brake::<()>::resume(now, window);
        assert!(brake.request(now, "next", 9, BUDGET).is_err(), "{hours}: it is used up");
        let later = now + MINUTE + Duration::from_secs(2);
        assert!(brake.request(later, "next", 9, BUDGET).is_ok(), "{hours}: for ten minutes");
        assert_eq!(error_of(&At::from(clock::wall()).to_string(), 0), 0);
    }
}
