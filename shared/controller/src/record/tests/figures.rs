//! Measures the costs of recording: `cargo test --release -p ccm-controller figures -- --nocapture`.

use std::{sync::Arc, time::Duration};

use ccm_base::{At, clock};
use ccm_runtime::records::Record as _;

use super::{
    Rig,
    toy::{Event, Toy, name, node},
};
use crate::machine::Machine as _;

/// Returns an event of 2 KB about one of 1000 nodes.
fn event(number: usize) -> Event {
    Event::Seen(node(number * 7919 % 1000, u32::try_from(number).unwrap(), 38))
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = clock::since_boot();
    run();
    (clock::since_boot() - start).as_secs_f64()
}

#[test]
fn memory_and_time() {
    let count = if cfg!(debug_assertions) { 200 } else { 50_000 };
    let bytes = serde_json::to_string(&event(1)).unwrap().len();
    assert!((1800..2300).contains(&bytes), "{bytes}");
    let events = |count: usize| (0..count).map(event).collect::<Vec<_>>();
    let (mut plain, all) = (Toy::new(1), events(count));
    let without = seconds(|| {
        for event in all {
            drop(plain.apply(event, At(Duration::from_secs(1))));
        }
    });
    for bound in [2_000_000, 8_000_000] {
        let (mut rig, all) = (Rig::new(bound, Toy::new(1)), events(count));
        let mut longest = 0.0_f64;
        let with = seconds(|| {
            for event in all {
                longest = longest.max(seconds(|| drop(rig.apply(event))));
            }
        });
        let kept = rig.recorder.kept();
        let page = rig.page(None, false).len();
        let read = seconds(|| drop(rig.page(Some(&name(7)), false)));
        let anonymous = seconds(|| drop(rig.page(None, true)));
        println!(
            "--record-bytes={bound}: {count} events of {bytes} bytes: {:.1} us each, {:.1} us without a record, longest {:.1} ms; \
             it holds {} bytes with {} events, {:.1} MB as text; of one object in {read:.2} s, anonymous in {anonymous:.2} s",
            with / count as f64 * 1e6,
            without / count as f64 * 1e6,
            longest * 1e3,
            kept.bytes,
            kept.events,
            page as f64 / 1e6,
        );
        assert!(kept.bytes < bound);
        assert!(Arc::strong_count(&rig.recorder.ring) == 2);
    }
}
