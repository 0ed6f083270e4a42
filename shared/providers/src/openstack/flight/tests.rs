//! Who waits for what, with paused time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::sleep;

use super::*;

static BEGUN: AtomicUsize = AtomicUsize::new(0);

async fn work() -> usize {
    let number = BEGUN.fetch_add(1, Ordering::Relaxed);
    sleep(Duration::from_secs(5)).await;
    number
}

fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn who_leaves_early_leaves_the_work_to_the_others() {
    let flight = Flight::default();
    let first = flight.join(work);
    assert_eq!(flight.wait(first, within(2)).await, Err(Missed::Late));
    let second = flight.join(work);
    assert_eq!(flight.wait(second, within(4)).await, Ok(0), "3 s later it has ended");
    assert!(flight.under_way().is_none());
    assert_eq!(flight.wait(flight.join(work), within(6)).await, Ok(1), "then it begins anew");

    let cut = flight.join(work);
    sleep(Duration::from_secs(1)).await;
    flight.cut_off();
    assert_eq!(flight.wait(cut, within(60)).await, Err(Missed::CutOff));
    assert_eq!(flight.wait(flight.join(work), within(6)).await, Ok(3), "and can begin again");
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_without_a_word_begins_anew_once_for_all_who_waited() {
    let (flight, begun) = (Flight::default(), Arc::new(AtomicUsize::new(0)));
    let work = || {
        let number = begun.fetch_add(1, Ordering::Relaxed);
        async move {
            sleep(Duration::from_secs(1)).await;
            assert_ne!(number, 0, "the first one fails");
            number
        }
    };
    let waiter = || async {
        loop {
            match flight.wait(flight.join(work), within(60)).await {
                Err(Missed::CutOff) => {}
                outcome => return outcome,
            }
        }
    };
    let outcomes = futures::future::join_all((0..5).map(|_| waiter())).await;
    assert_eq!(outcomes, [Ok(1); 5]);
    assert_eq!(begun.load(Ordering::Relaxed), 2);
}
