//! Watches that fail in silence.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{
    running::Running,
    server::{Fault, Server, node},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
/// Longer than any watch lasts.
const A_WATCH: Duration = Duration::from_secs(31);

/// Runs a server whose version grows by writes to other kinds, as in any cluster.
async fn busy(server: &Server, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        sleep(SECOND).await;
        server.write_elsewhere();
    }
}

/// Waits until the watch fails, and says how long that took and why.
async fn failing(server: &Server, running: &Running) -> (Duration, String) {
    let start = Instant::now();
    while start.elapsed() < 10 * MINUTE {
        if let Some(failed) = running.state.failure() {
            return (start.elapsed(), failed.to_string());
        }
        busy(server, SECOND).await;
        server.put(node("heartbeat", &start.elapsed().as_secs().to_string()));
    }
    panic!("it is not noticed");
}

/// The API server accepts the watch and stays silent.
#[tokio::test(start_paused = true)]
async fn a_restored_etcd_is_noticed_without_an_error() {
    let server = Server::new();
    for _ in 0..50 {
        server.put(node("a", "after"));
    }
    server.put(node("b", "after"));
    let running = Running::synced(&server).await;
    sleep(Duration::from_secs(10)).await;
    server.restore(60, vec![node("a", "before")]);
    sleep(Duration::from_secs(35)).await;
    assert_eq!(running.reported(), ["a:after>before", "-b:after"]);
    server.put(node("c", "new"));
    running.a_moment().await;
    assert_eq!(running.reported(), ["+c:new"]);
}

#[tokio::test(start_paused = true)]
async fn a_restored_etcd_that_has_overtaken_the_watch_is_noticed() {
    let server = Server::new();
    for _ in 0..50 {
        server.put(node("a", "after"));
    }
    server.put(node("b", "after"));
    let running = Running::synced(&server).await;
    server.be_unreachable(true);
    sleep(Duration::from_secs(20)).await;
    server.restore(60, vec![node("a", "before")]);
    for _ in 0..200 {
        server.write_elsewhere();
    }
    server.be_unreachable(false);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(running.reported(), ["a:after>before", "-b:after"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_swallowed_is_noticed_and_replaced_by_lists() {
    for has_bookmarks in [true, false] {
        let server = Server::new();
        if has_bookmarks {
            server.send_bookmarks();
        }
        let running = Running::synced(&server).await;
        busy(&server, A_WATCH).await;
        server.put(node("a", "x"));
        server.fail_always(Some(Fault::Silence));
        busy(&server, A_WATCH).await;
        let (took, why) = failing(&server, &running).await;
        assert!(took <= MINUTE, "{took:?}");
        assert!(why.contains("it does not show changes that a list shows"), "{why}");
        running.reported();
        server.put(node("late", "x"));
        busy(&server, MINUTE).await;
        assert!(running.reported().contains(&"+late:x".to_owned()), "a list shows it");
        assert!(running.state.failure().is_some(), "a list does not prove that a watch works");

        server.fail_always(None);
        busy(&server, 10 * SECOND).await;
        server.put(node("b", "x"));
        running.a_moment().await;
        assert_eq!(running.state.failure(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_or_cut_is_noticed_with_the_error() {
    for (fault, expect) in [
        (Fault::Status(403), "forbidden: as asked for"),
        (Fault::Unreachable, "connection refused"),
        (Fault::Says(String::new()), "it does not show changes that a list shows"),
    ] {
        let server = Server::new();
        server.send_bookmarks();
        server.put(node("a", "x"));
        let running = Running::synced(&server).await;
        busy(&server, A_WATCH).await;
        assert_eq!(running.state.failure(), None);
        server.fail_always(Some(fault.clone()));
        busy(&server, A_WATCH).await;
        let (took, why) = failing(&server, &running).await;
        assert!(took <= MINUTE, "{fault:?}: {took:?}");
        assert!(why.contains(expect), "{fault:?}: {why}");
        server.fail_always(None);
        // The pause before the next try and that before the first proof.
        busy(&server, 45 * SECOND).await;
        assert_eq!(running.state.failure(), None, "{fault:?}: soon after the end of the fault");
    }
}

/// A new process has to see before it says that it does, also if nothing is written between its
/// list and its watch.
#[tokio::test(start_paused = true)]
async fn a_watch_that_never_worked_does_not_work() {
    for fault in [Fault::Status(403), Fault::Silence, Fault::Says(String::new())] {
        let server = Server::new();
        server.fail_always(Some(fault.clone()));
        let running = Running::start(&server);
        running.store.wait_synced().await;
        for second in 0..200 {
            assert!(running.state.failure().is_some(), "{fault:?}: after {second} s");
            busy(&server, SECOND).await;
            server.put(node("heartbeat", &second.to_string()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_swallowed_deletion_is_noticed() {
    let server = Server::new();
    server.put(node("a", "x"));
    server.put(node("b", "x"));
    let running = Running::synced(&server).await;
    busy(&server, A_WATCH).await;
    server.fail_always(Some(Fault::Silence));
    busy(&server, A_WATCH).await;
    server.delete("a");
    let start = Instant::now();
    while running.state.failure().is_none() {
        assert!(start.elapsed() < 2 * MINUTE, "it is not noticed");
        busy(&server, SECOND).await;
    }
    assert!(running.reported().contains(&"-a:x".to_owned()), "a list shows it");
}

/// Nothing changes, but the bookmarks that came in each watch come no more.
#[tokio::test(start_paused = true)]
async fn a_watch_without_its_bookmarks_is_noticed() {
    let server = Server::new();
    server.send_bookmarks();
    let running = Running::synced(&server).await;
    busy(&server, 5 * A_WATCH).await;
    server.fail_always(Some(Fault::Silence));
    busy(&server, A_WATCH).await;
    let start = Instant::now();
    while running.state.failure().is_none() {
        assert!(start.elapsed() < MINUTE, "it is not noticed");
        busy(&server, SECOND).await;
    }
    busy(&server, 5 * MINUTE).await;
    assert!(running.state.failure().is_some(), "a list without news does not count as a bookmark");
    server.fail_always(None);
    busy(&server, 10 * SECOND).await;
    assert_eq!(running.state.failure(), None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_changes_works() {
    for (has_bookmarks, is_busy, lists) in
        [(true, true, 0..=0), (true, false, 0..=0), (false, false, 0..=0), (false, true, 40..=46)]
    {
        let case = format!("bookmarks {has_bookmarks}, busy {is_busy}");
        let server = Server::new();
        if has_bookmarks {
            server.send_bookmarks();
        }
        server.put(node("a", "x"));
        let running = Running::synced(&server).await;
        for _ in 0..1800 {
            match is_busy {
                true => busy(&server, SECOND).await,
                false => sleep(SECOND).await,
            }
            assert_eq!(running.state.failure(), None, "{case}");
        }
        let (listed, watches) = server.counts();
        assert!(lists.contains(&listed), "{case}: {listed} lists");
        assert!((40..=95).contains(&watches), "{case}: {watches} watches in half an hour");
        assert_eq!(running.reported(), [""; 0], "{case}");
    }
}

/// The list takes longer than the silence after which everything is listed. The watch that follows it
/// can have shown nothing before.
#[tokio::test(start_paused = true)]
async fn a_slow_list_is_made_once() {
    let server = Server::new();
    server.send_bookmarks();
    for number in 0..300 {
        server.put(node(&format!("n{number}"), "x"));
    }
    server.take_for_pages(20 * SECOND);
    let running = Running::start(&server);
    running.store.wait_synced().await;
    busy(&server, 5 * MINUTE).await;
    let (pages, _) = server.counts();
    assert_eq!(pages, 3, "20, 100 and 180 nodes, in one list of 60 s");
    assert_eq!(running.state.failure(), None);
}
