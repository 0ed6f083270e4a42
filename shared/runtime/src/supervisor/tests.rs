use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Supervisor;

fn supervisor() -> Supervisor {
    Supervisor::new(CancellationToken::new())
}

async fn first_failure(supervisor: &Supervisor) -> Option<String> {
    timeout(Duration::from_secs(5), supervisor.failed()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn each_wrong_end_is_a_failure() {
    let check = async |start: fn(&Supervisor), expect: Option<&str>| {
        let supervisor = supervisor();
        start(&supervisor);
        assert_eq!(first_failure(&supervisor).await.as_deref(), expect);
    };
    check(|it| it.spawn("informer", async {}), Some("task informer ended unexpectedly")).await;
    check(|it| it.spawn_job("warm-up", async {}), None).await;
    check(
        |it| it.spawn("sync-1", async { panic!("index {}", 7) }),
        Some("task sync-1 panicked: index 7"),
    )
    .await;
    check(
        |it| it.spawn_job("warm-up", async { panic!("plain") }),
        Some("task warm-up panicked: plain"),
    )
    .await;
    check(|it| it.spawn("endless", std::future::pending::<()>()), None).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_after_cancelling_is_none() {
    let supervisor = supervisor();
    let token = supervisor.token().clone();
    supervisor.spawn("worker", async move { token.cancelled().await });
    supervisor.token().cancel();
    assert_eq!(supervisor.wait_all(Duration::from_secs(1)).await, Ok(()));
    assert_eq!(first_failure(&supervisor).await, None);
}

#[tokio::test(start_paused = true)]
async fn only_the_first_failure_counts_and_it_stays() {
    let supervisor = supervisor();
    supervisor.spawn("late", async {
        sleep(Duration::from_secs(2)).await;
        panic!("second")
    });
    supervisor.spawn("early", async {
        sleep(Duration::from_secs(1)).await;
        panic!("first")
    });
    for _ in 0..2 {
        assert_eq!(first_failure(&supervisor).await.unwrap(), "task early panicked: first");
        sleep(Duration::from_secs(3)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_is_bounded_and_names_the_late() {
    let supervisor = supervisor();
    supervisor.spawn_job("quick", sleep(Duration::from_secs(1)));
    supervisor.spawn_job("slow", sleep(Duration::from_mins(1)));
    let began = Instant::now();
    let late = supervisor.wait_all(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert_eq!(late.to_string(), "still running after 5 s: slow");
    assert_eq!(supervisor.running(), ["slow"]);
    assert_eq!(supervisor.wait_all(Duration::from_mins(1)).await, Ok(()));
}

#[tokio::test]
async fn a_panic_leaves_the_other_tasks_alone() {
    let supervisor = supervisor();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    supervisor.spawn_job("bad", async { panic!("x") });
    supervisor.failed().await;
    supervisor.spawn_job("good", async { sender.send(7).unwrap() });
    assert_eq!(receiver.await, Ok(7));
}
