//! The end of a process whose configuration has changed in a way that only a new process can use.

use std::time::Duration;

use ccm_base::jittered;
use futures::FutureExt as _;
use tokio::time::sleep;

/// The longest time for which a leader continues with an outdated configuration. The shortest is
/// two thirds of it. A standby ends and is restarted within this time.
const HANDOVER: Duration = Duration::from_secs(90);

/// Waits until the process must end, so that the next one has the changed configuration: `what` in
/// log lines. `changed` returns while the configuration differs, with the names of the changed
/// settings. A standby ends at once; the leader gives it the time to come back.
pub(super) async fn outdated<F>(what: &str, changed: impl Fn() -> F, leads: impl Fn() -> bool)
where
    F: Future<Output = String>,
{
    loop {
        let settings = changed().await;
        if !leads() {
            tracing::info!(settings, "exiting to restart with the changed {what}");
            return;
        }
        let wait = jittered(HANDOVER, 2.0 / 3.0..1.0);
        let seconds = wait.as_secs();
        tracing::info!(settings, seconds, "the {what} has changed; giving up leadership soon");
        sleep(wait).await;
        // The change may have been undone in the meantime.
        if changed().now_or_never().is_some() {
            tracing::info!(settings, "giving up leadership: the {what} has changed");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::watch, time::Instant};

    use super::*;

    /// Returns how long a process continues after its configuration has changed. `back` has the
    /// seconds after which the configuration is changed back, and changed again.
    async fn goes_on(leads: bool, back: Option<(u64, u64)>) -> u64 {
        let is_changed = watch::Sender::new(false);
        let begin = Instant::now();
        let change = async {
            is_changed.send_replace(true);
            if let Some((back, again)) = back {
                sleep(Duration::from_secs(back)).await;
                is_changed.send_replace(false);
                sleep(Duration::from_secs(again)).await;
                is_changed.send_replace(true);
            }
        };
        let changed = || async {
            is_changed.subscribe().wait_for(|is| *is).await.unwrap();
            "region".to_owned()
        };
        tokio::join!(outdated("configuration", changed, || leads), change);
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_ends_at_once_and_the_leader_leaves_it_time_to_come_back() {
        assert_eq!(goes_on(false, None).await, 0);
        for _ in 0..20 {
            assert!((60..=90).contains(&goes_on(true, None).await));
        }
        let taken_back = goes_on(true, Some((10, 200))).await;
        assert!((270..=300).contains(&taken_back), "{taken_back} s: the count begins again");
    }
}
