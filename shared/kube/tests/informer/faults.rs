//! Reactions to a failing server.

use std::time::Duration;

use ccm_testing::Log;
use tokio::time::sleep;
use tracing::Level;

use crate::{
    running::Running,
    server::{Fault, Server, node},
};

/// Longer than three steps of the back-off: at most 1.6, 3.2 and 6.4 s.
const THREE_STEPS: Duration = Duration::from_secs(12);
/// The first watch lasts 3 s. The second one is under way at this time, and it ends within the
/// same time and five seconds from then.
const A_WATCH: Duration = Duration::from_secs(21);

/// The first watch has ended, and the second one is under way.
const AFTER_TRIAL: Duration = Duration::from_secs(5);

fn repeat(fault: &Fault, times: usize) -> Vec<Fault> {
    vec![fault.clone(); times]
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_go_on_is_replaced_by_a_list() {
    for fault in [
        Fault::Status(504),
        Fault::Status(400),
        Fault::Event(504),
        Fault::Says("{\"type\": \"MODIFIED\", 5}\n".to_owned()),
        Fault::Says("{\"some\": \"JSON\"}\n".to_owned()),
    ] {
        let server = Server::new();
        server.put(node("a", "x"));
        server.put(node("b", "x"));
        let running = Running::synced(&server).await;
        // Deletions that no watch can show any more.
        server.fail_watches([Fault::Silence]);
        sleep(AFTER_TRIAL).await;
        server.requests();
        server.delete("b");
        server.put(node("c", "x"));
        server.compact();
        server.fail_watches(repeat(&fault, 3));
        // Not left to its own end: a watch that is silent for longer causes a list of its own.
        server.end_watches();
        sleep(THREE_STEPS).await;
        let (lists, watches) = server.counts();
        assert_eq!(lists, 1, "{fault:?}");
        // The three that failed, the next, and possibly two more.
        assert!((4..=6).contains(&watches), "{fault:?}: {watches} watches");
        assert_eq!(running.reported(), ["+c:x", "-b:x"], "{fault:?}");
        assert!((running.relists() - 1.0).abs() < 0.1, "{fault:?}");
        server.put(node("a", "y"));
        running.a_moment().await;
        assert_eq!(running.reported(), ["a:x>y"], "{fault:?}: it watches again");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_said_by_an_event_is_listed_at_once() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    server.fail_watches([Fault::Silence]);
    sleep(A_WATCH).await;
    server.put(node("b", "x"));
    server.compact();
    // The silent watch is given up five seconds after its end.
    sleep(A_WATCH + Duration::from_secs(5)).await;
    assert_eq!(running.reported(), ["+b:x"]);
    assert_eq!((running.relists(), running.errors("expired")), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_delay_the_list_after_an_expired_version() {
    for expired in [Fault::Status(410), Fault::Event(410)] {
        let server = Server::new();
        server.put(node("a", "x"));
        let running = Running::synced(&server).await;
        let outage = repeat(&Fault::Status(503), 3);
        server.fail_watches([outage, vec![expired.clone()]].concat());
        sleep(Duration::from_millis(3500)).await;
        server.put(node("b", "x"));
        while running.errors("expired") == 0.0 {
            sleep(Duration::from_millis(100)).await;
        }
        assert!(running.reported().is_empty(), "{expired:?}");
        // One step of the back-off is at most 1.6 s.
        sleep(Duration::from_secs(2)).await;
        assert_eq!(running.reported(), ["+b:x"], "{expired:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_where_every_watch_fails_is_not_asked_for_lists_all_the_time() {
    for fault in [Fault::Status(410), Fault::Event(410), Fault::Status(504)] {
        let server = Server::new();
        server.put(node("a", "x"));
        server.fail_always(Some(fault.clone()));
        let running = Running::start(&server);
        sleep(Duration::from_hours(1)).await;
        let (lists, watches) = server.counts();
        // The back-off ends at 15 s, before a list at 30 s.
        assert!((20..=130).contains(&lists), "{fault:?}: {lists} lists in an hour");
        assert!((60..=280).contains(&watches), "{fault:?}: {watches} watches in an hour");
        server.fail_always(None);
        server.put(node("a", "y"));
        sleep(Duration::from_mins(2)).await;
        assert_eq!(running.reported().last().unwrap(), "a:x>y", "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_are_not_begun_again_at_once() {
    let server = Server::new();
    let running = Running::synced(&server).await;
    server.fail_always(Some(Fault::Says(String::new())));
    sleep(A_WATCH).await;
    server.requests();
    sleep(Duration::from_mins(1)).await;
    let (lists, watches) = server.counts();
    assert_eq!(lists, 0);
    assert!((50..=61).contains(&watches), "{watches} watches in a minute");
    server.fail_always(None);
    server.put(node("a", "x"));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(running.reported(), ["+a:x"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_is_watched_from_where_it_was_lost() {
    for fault in [Fault::Unreachable, Fault::Status(503), Fault::Status(401), Fault::Status(403)] {
        let server = Server::new();
        server.put(node("a", "x"));
        let running = Running::synced(&server).await;
        server.fail_watches(repeat(&fault, 3));
        server.put(node("a", "y"));
        running.a_moment().await;
        assert_eq!(running.reported(), ["a:x>y"]);
        sleep(Duration::from_millis(3500)).await;
        server.put(node("b", "x"));
        sleep(Duration::from_mins(3)).await;
        let (lists, _) = server.counts();
        assert_eq!(lists, 0, "{fault:?}: nothing was lost");
        assert_eq!(running.reported(), ["+b:x"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_died_without_a_word_is_noticed() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    server.fail_watches([Fault::Silence]);
    sleep(A_WATCH).await;
    server.put(node("a", "y"));
    running.a_moment().await;
    assert_eq!(running.reported(), [""; 0], "the watch is silent");
    sleep(A_WATCH + Duration::from_secs(5)).await;
    assert_eq!(running.reported(), ["a:x>y"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_begun_anew_and_deletes_nothing() {
    let server = Server::new();
    for number in 0..1250 {
        server.put(node(&format!("node-{number:04}"), "x"));
    }
    let fault = |code| Some(Fault::Status(code));
    server.fail_lists([fault(503), None, fault(500), None, None, fault(410)]);
    let running = Running::start(&server);
    running.store.wait_synced().await;
    assert_eq!(running.reported().len(), 1250, "each is added once");
    assert_eq!(server.counts().0, 9);
    assert_eq!((running.errors("unavailable"), running.errors("expired")), (2.0, 1.0));
    // Once more, when there is something to lose.
    server.compact();
    server.put(node("node-0000", "y"));
    server.fail_lists([None, fault(500)]);
    server.fail_watches([Fault::Event(410)]);
    sleep(A_WATCH * 2).await;
    assert_eq!(running.store.len(), 1250);
    assert_eq!(running.reported(), ["node-0000:x>y"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_restored_from_a_backup_is_believed() {
    let server = Server::new();
    server.put(node("a", "before"));
    for _ in 0..50 {
        server.put(node("a", "after"));
    }
    server.put(node("b", "after"));
    let running = Running::synced(&server).await;
    server.restore(60, vec![node("a", "before")]);
    // "Too large resource version".
    server.fail_watches(repeat(&Fault::Status(504), 3));
    sleep(A_WATCH + THREE_STEPS).await;
    assert_eq!(running.reported(), ["a:after>before", "-b:after"]);
    assert_eq!(&*running.store.get("a").unwrap().resource_version, "60");
    server.put(node("a", "new"));
    running.a_moment().await;
    assert_eq!(running.reported(), ["a:before>new"]);
}

#[tokio::test(start_paused = true)]
async fn one_good_event_shows_that_a_watch_goes_on() {
    let server = Server::new();
    server.put(node("a", "x"));
    let running = Running::synced(&server).await;
    // Two errors, a success, two errors: never three in a row.
    for label in ["1", "2", "3"] {
        server.fail_watches(repeat(&Fault::Event(504), 2));
        server.end_watches();
        sleep(THREE_STEPS).await;
        server.put(node("a", label));
        running.a_moment().await;
    }
    assert_eq!(server.counts().0, 0);
    assert_eq!(running.reported().len(), 3);
}

/// An outage of minutes has a line every half minute, not one for each attempt.
#[tokio::test(start_paused = true)]
async fn the_log_of_an_outage_is_short() {
    let log = Log::new();
    let _listening = log.listen(Level::INFO);
    let server = Server::new();
    let running = Running::synced(&server).await;
    server.be_unreachable(true);
    server.end_watches();
    sleep(Duration::from_mins(5)).await;
    let (attempts, lines) = (running.errors("unavailable"), log.lines_with("list or watch failed"));
    assert!(attempts > 15.0, "{attempts}");
    assert!((8..=11).contains(&lines), "{lines} lines for {attempts} attempts");
    assert_eq!(log.lines_with("connection refused"), lines);
}

/// The error that `/readyz` shows while the first list fails.
#[tokio::test(start_paused = true)]
async fn the_last_error_is_kept_until_something_is_read() {
    for (fault, expect) in [
        (Fault::Status(403), "forbidden: as asked for"),
        (Fault::Status(401), "the API server does not accept the credentials"),
        (Fault::Status(404), "404 for /api/v1/nodes: is this a Kubernetes API server?"),
        (Fault::Unreachable, "connection refused"),
    ] {
        let server = Server::new();
        server.put(node("a", "x"));
        server.fail_lists([Some(fault.clone()), Some(fault.clone())]);
        let running = Running::start(&server);
        // During the second wait: the list has restarted once.
        while server.counts().0 == 0 || running.state.last_error().is_none() {
            running.a_moment().await;
        }
        sleep(Duration::from_secs(2)).await;
        assert!(!running.store.is_synced(), "{fault:?}");
        let reported = running.state.last_error().unwrap().to_string();
        assert!(reported.contains(expect), "{fault:?}: {reported}");
        running.store.wait_synced().await;
        running.a_moment().await;
        assert_eq!(running.state.last_error(), None, "{fault:?}");
    }
}
