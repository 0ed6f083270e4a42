//! Many keys of one group delay no other group, and a key that changes all the time delays itself.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::queue::{KeyRate, Priority, QueueConfig, QueueMetrics, WorkQueue, state::Core};
use ccm_runtime::metrics::Metrics;

const SECOND: Duration = Duration::from_secs(1);

fn group(key: &u32) -> u64 {
    u64::from(key / 1000)
}

fn core(config: QueueConfig) -> Core<u32> {
    Core::new(config, group)
}

/// One group has hundreds of keys in the queue all the time.
#[test]
fn a_key_of_another_group_waits_for_one_key_of_each_group() {
    let (mut core, now) = (core(QueueConfig::default()), Instant::now());
    for priority in [Priority::Urgent, Priority::Routine] {
        (0..300).for_each(|key| core.add(key, priority, now));
        (1000..1300).for_each(|key| core.add(key, priority, now));
        (0..10).for_each(|_| assert_eq!(core.take_batch(1, now).len(), 1));
        core.add(2000, priority, now);
        let taken: Vec<u32> = core.take_batch(600, now).into_iter().map(|one| one.key).collect();
        let before = taken.iter().position(|key| *key == 2000).expect("it is taken");
        assert!(before <= 2, "{before} keys of two groups before it");
        for key in 0..2001 {
            core.done(&key, now);
        }
    }
}

/// A key of a priority does not wait for the turns of the other one.
#[test]
fn an_urgent_key_comes_before_the_turns_of_routine_ones() {
    let (mut core, now) = (core(QueueConfig::default()), Instant::now());
    (0..3000).step_by(500).for_each(|key| core.add(key, Priority::Routine, now));
    core.add(1, Priority::Urgent, now);
    assert_eq!(core.take_batch(1, now)[0].key, 1);
}

#[test]
fn a_key_that_changes_all_the_time_is_handed_out_at_its_rate() {
    let key_rate = KeyRate { burst: 5, interval: 10 * SECOND };
    let mut core = core(QueueConfig { key_rate, ..QueueConfig::default() });
    let (begin, mut taken) = (Instant::now(), 0);
    for tenths in 0..1000 {
        let now = begin + SECOND / 10 * tenths;
        core.add_paced(1, Priority::Urgent, now);
        taken += core.take_batch(9, now).len();
        core.done(&1, now);
    }
    assert_eq!(taken, 5 + 9, "in 100 s");
    let now = begin + SECOND / 100 * 9995;
    assert!(core.take_batch(9, now).is_empty());
    // A deletion does not wait, and neither does any other add.
    core.add(1, Priority::Routine, now);
    core.add_paced(2, Priority::Urgent, now);
    assert_eq!(core.take_batch(9, now).len(), 2);
    assert!(core.snapshot(now).paced >= 9);
}

/// The last change is never lost.
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_rate_is_handed_out() {
    let key_rate = KeyRate { burst: 1, interval: 10 * SECOND };
    let config = QueueConfig { key_rate, ..QueueConfig::default() };
    let queue = WorkQueue::grouped("s", config, &QueueMetrics::new(&Metrics::new()), group);
    let begin = Instant::now();
    queue.add_paced(1, Priority::Urgent);
    assert_eq!(queue.get().await, Some(1));
    queue.add_paced(1, Priority::Urgent);
    queue.done(&1);
    sleep(SECOND).await;
    queue.add_paced(1, Priority::Urgent);
    assert_eq!(queue.get().await, Some(1));
    assert_eq!(begin.elapsed(), 10 * SECOND);
    queue.done(&1);
    assert!(queue.is_empty());
}

/// A user's script writes the same Service twice before it is read once.
#[test]
fn a_key_that_waits_already_takes_nothing_from_its_rate() {
    let key_rate = KeyRate { burst: 2, interval: 10 * SECOND };
    let mut core = core(QueueConfig { key_rate, ..QueueConfig::default() });
    let now = Instant::now();
    (0..10).for_each(|_| core.add_paced(1, Priority::Urgent, now));
    assert_eq!(core.take_batch(9, now).len(), 1);
    core.done(&1, now);
    core.add_paced(1, Priority::Urgent, now);
    assert_eq!(core.take_batch(9, now).len(), 1, "the second of the burst");
}
