//! Tests which callers wait for which run, with paused time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::sleep;

use super::*;

static BEGUN: AtomicUsize = AtomicUsize::new(0);

async fn work() -> Result<usize, Failure> {
    let number = BEGUN.fetch_add(1, Ordering::Relaxed);
    sleep(Duration::from_secs(5)).await;
    Ok(number)
}

/// Returns the result of the work for a caller with this many seconds left.
async fn take<F>(flight: &SingleFlight<usize>, seconds: u64, work: impl FnOnce() -> F) -> Took
where
    F: Future<Output = Result<usize, Failure>> + Send + 'static,
{
    let call = Call::waiting(Duration::from_secs(seconds));
    let outcome = match flight.join(work) {
        Ok(pending) => flight.wait(pending, call).await,
        Err(failure) => Err(failure),
    };
    outcome.map_err(|failure| failure.error.kind)
}

type Took = Result<usize, ErrorKind>;

#[tokio::test(start_paused = true)]
async fn who_leaves_early_leaves_the_work_to_the_others() {
    let flight = SingleFlight::new("work");
    assert_eq!(take(&flight, 2, work).await, Err(ErrorKind::Timeout));
    assert_eq!(take(&flight, 4, work).await, Ok(0), "3 s later it has ended");
    assert_eq!(take(&flight, 6, work).await, Ok(1), "then it begins again");

    let cut = flight.join(work).unwrap();
    sleep(Duration::from_secs(1)).await;
    flight.abort();
    let call = Call::waiting(Duration::from_secs(60));
    assert_eq!(flight.wait(cut, call).await.unwrap_err().error.kind, ErrorKind::Unavailable);
    assert_eq!(take(&flight, 6, work).await, Ok(3), "and can begin again");
}

#[tokio::test(start_paused = true)]
async fn a_failure_answers_later_callers_while_it_holds() {
    let flight = SingleFlight::new("work");
    let begun = Arc::new(AtomicUsize::new(0));
    let fails = || {
        let number = begun.fetch_add(1, Ordering::Relaxed);
        async move {
            let error = CloudError::new(ErrorKind::Invalid, number.to_string());
            Err(Failure { holds: Duration::from_secs(5), ..error.into() })
        }
    };
    for (seconds, expect) in [(0, 1), (4, 1), (1, 2)] {
        sleep(Duration::from_secs(seconds)).await;
        assert_eq!(take(&flight, 9, fails).await, Err(ErrorKind::Invalid));
        assert_eq!(begun.load(Ordering::Relaxed), expect);
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_without_a_word_begins_anew_once_for_all_who_waited() {
    let (flight, begun) = (SingleFlight::new("work"), Arc::new(AtomicUsize::new(0)));
    let work = || {
        let number = begun.fetch_add(1, Ordering::Relaxed);
        async move {
            sleep(Duration::from_secs(1)).await;
            assert_ne!(number, 0, "the first one fails");
            Ok(number)
        }
    };
    let waiter = || async {
        loop {
            match take(&flight, 60, work).await {
                Err(ErrorKind::Unavailable) => {}
                outcome => return outcome,
            }
        }
    };
    let outcomes = futures::future::join_all((0..5).map(|_| waiter())).await;
    assert_eq!(outcomes, [Ok(1); 5]);
    assert_eq!(begun.load(Ordering::Relaxed), 2);
}
