//! Runs work on its own thread, so that the tasks of the process cannot delay it.

use std::{io, panic::resume_unwind, thread};

use tokio::{runtime::Builder, sync::oneshot};

/// Runs this on its own thread, with its own async runtime: its tasks and timers do not wait for
/// the tasks of the other threads. Panics if the work panics, or if the thread cannot be started.
///
/// If this is dropped, the thread continues until its work ends.
pub(super) async fn on_own_thread(
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let (sender, ended) = oneshot::channel();
    let run = move || -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work);
        // A blocking name lookup must not hold the thread.
        runtime.shutdown_background();
        drop(sender);
        Ok(())
    };
    let outcome = match thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(thread) => {
            // The end of the thread drops the sender, also if it panics.
            ended.await.unwrap_or(());
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        }
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        resume_unwind(Box::new(format!("cannot start the thread of {name}: {error}")));
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures::FutureExt as _;
    use tokio::{sync::Notify, time::sleep};

    use super::*;

    /// The only thread of the other tasks is busy, and the work goes on.
    #[tokio::test]
    async fn busy_tasks_do_not_delay_it() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = async move {
            for step in 0..3 {
                sleep(Duration::from_millis(5)).await;
                sender.send(step).ok();
            }
        };
        let mut running = Box::pin(on_own_thread("busy", work));
        assert!((&mut running).now_or_never().is_none());
        // Blocks this thread.
        let steps: Vec<i32> =
            (0..3).map(|_| receiver.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
        assert_eq!(steps, [0, 1, 2]);
        running.await;
    }

    #[tokio::test]
    async fn it_ends_when_its_work_is_told_to() {
        let stop = Arc::new(Notify::new());
        let follow = Arc::clone(&stop);
        let mut running = Box::pin(on_own_thread("told", async move { follow.notified().await }));
        assert!((&mut running).now_or_never().is_none());
        stop.notify_one();
        running.await;
    }

    #[tokio::test]
    async fn a_panic_is_passed_on() {
        let work = async { resume_unwind(Box::new("broken")) };
        let running = std::panic::AssertUnwindSafe(on_own_thread("panics", work));
        let panic = running.catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"broken"));
    }
}
