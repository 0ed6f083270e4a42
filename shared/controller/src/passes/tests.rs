use tokio::sync::mpsc;

use super::*;

/// Quirk 8: programs that started together do not keep listing at the same time.
#[tokio::test(start_paused = true)]
async fn periods_vary_by_ten_percent() {
    let period = Duration::from_mins(5);
    for (unit, seconds) in [(0.0, 270), (0.5, 300), (1.0, 330)] {
        let ended = Instant::now();
        let wait = Wait { next: NextPass::Period, failures: 0, unit, ended };
        let got = (wait.due(period) - ended).as_secs_f64();
        assert!((got - f64::from(seconds)).abs() < 0.001, "{unit}: {got}");
    }
}

#[test]
fn failures_wait_for_retry_after_or_double_the_interval() {
    let asks = |seconds| RetryClass::RetryAfter(Duration::from_secs(seconds));
    for (what, class, failures, seconds) in [
        ("first", RetryClass::Retry, 1, 5),
        ("second", RetryClass::Retry, 2, 10),
        ("fourth", RetryClass::Retry, 4, 40),
        ("fifth", RetryClass::Retry, 5, 60),
        ("many", RetryClass::Retry, u32::MAX, 60),
        ("a permanent error", RetryClass::Permanent, 1, 60),
        ("as the cloud asks", asks(90), 1, 90),
        ("but not at once", asks(1), 1, 5),
    ] {
        assert_eq!(WAITS.after(class, failures), Duration::from_secs(seconds), "{what}");
    }
}

/// Records when each pass began, takes a while, and returns what the test sets.
struct Noted {
    began: mpsc::UnboundedSender<f64>,
    start: Instant,
    takes: Duration,
    next: watch::Receiver<Plan>,
}

#[derive(Clone, Copy)]
struct Plan {
    next: fn() -> NextPass,
    period: u64,
}

impl Pass for Noted {
    async fn pass(&mut self) -> NextPass {
        self.began.send(self.start.elapsed().as_secs_f64()).ok();
        sleep(self.takes).await;
        let next = self.next.borrow().next;
        next()
    }

    fn period(&self) -> Duration {
        Duration::from_secs(self.next.borrow().period)
    }
}

struct Loop {
    passes: Passes,
    plan: watch::Sender<Plan>,
    began: mpsc::UnboundedReceiver<f64>,
    token: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn begin(takes: u64, next: fn() -> NextPass, period: u64) -> Loop {
    let (sender, began) = mpsc::unbounded_channel();
    let (plan, seen) = watch::channel(Plan { next, period });
    let takes = Duration::from_secs(takes);
    let noted = Noted { began: sender, start: Instant::now(), takes, next: seen.clone() };
    let (passes, token) = (Passes::default(), CancellationToken::new());
    #[expect(clippy::disallowed_methods, reason = "the handle is kept and awaited")]
    let task = tokio::spawn(passes.clone().run(noted, seen, token.clone()));
    Loop { passes, plan, began, token, task }
}

impl Loop {
    /// Returns when the next pass begins, in seconds.
    async fn next(&mut self) -> f64 {
        self.began.recv().await.expect("the loop runs")
    }
}

fn about(got: f64, expect: f64, spread: f64) {
    assert!((got - expect).abs() <= spread + 0.01, "{got}, not {expect}");
}

#[tokio::test(start_paused = true)]
async fn periods_start_at_the_end_of_a_pass_and_changes_apply_at_once() {
    let mut passes = begin(2, || NextPass::Period, 100);
    about(passes.next().await, 0.0, 0.0);
    about(passes.next().await, 102.0, 10.0);
    sleep(Duration::from_secs(20)).await;
    passes.plan.send_modify(|plan| plan.period = 50);
    about(passes.next().await, 154.0, 15.0);
}

#[tokio::test(start_paused = true)]
async fn failed_passes_are_retried_within_a_period() {
    let failed = || NextPass::Failed(RetryClass::Retry);
    let mut passes = begin(0, failed, 15);
    about(passes.next().await, 0.0, 0.0);
    about(passes.next().await, 5.0, 0.0);
    about(passes.next().await, 15.0, 0.0);
    about(passes.next().await, 30.0, 1.5);
}

#[tokio::test(start_paused = true)]
async fn wake_ups_start_a_pass_soon_and_are_rate_limited() {
    let idle = || NextPass::At(Instant::now() + Duration::from_secs(60));
    let mut passes = begin(0, idle, 1);
    about(passes.next().await, 0.0, 0.0);
    passes.passes.wake();
    about(passes.next().await, 1.0, 0.0);
    sleep(Duration::from_secs(10)).await;
    passes.passes.wake();
    about(passes.next().await, 11.1, 0.0);
    sleep(Duration::from_secs(10)).await;
    passes.plan.send_modify(|_| {});
    about(passes.next().await, 21.1, 0.0);
    about(passes.next().await, 81.1, 0.0);
}

#[tokio::test(start_paused = true)]
async fn draining_awaits_the_current_pass_and_starts_no_other() {
    let mut passes = begin(5, || NextPass::Period, 1);
    about(passes.next().await, 0.0, 0.0);
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    passes.passes.drain().await;
    about(start.elapsed().as_secs_f64(), 4.0, 0.0);
    sleep(Duration::from_secs(100)).await;
    assert!(passes.began.try_recv().is_err(), "another pass");
    assert!(!passes.task.is_finished(), "it ends with its token only");
    passes.token.cancel();
    passes.task.await.expect("no panic");
}
