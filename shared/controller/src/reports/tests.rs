use super::*;

const NODE: &str = "node-1";

#[tokio::test(start_paused = true)]
async fn a_lasting_state_is_reported_on_change_and_every_ten_minutes() {
    let memory = ReportMemory::new(Duration::ZERO);
    for (advance, state, expect) in [
        (0, "throttled", true),
        (1, "throttled", false),
        (0, "timeout", true),
        (0, "timeout", false),
        (0, "throttled", true),
        (599, "throttled", false),
        (1, "throttled", true),
    ] {
        tokio::time::advance(Duration::from_secs(advance)).await;
        assert_eq!(memory.changed(NODE, "Waiting", state), expect, "{state} after {advance} s");
        assert_eq!(memory.state(NODE, "Waiting").as_deref(), Some(state));
    }
    assert!(memory.changed(NODE, "Other", "throttled"), "another topic has states of its own");
    assert!(memory.changed("node-2", "Waiting", "throttled"), "so has another object");
}

#[tokio::test(start_paused = true)]
async fn a_flapping_state_is_reported_once_a_minute() {
    let memory = ReportMemory::new(Duration::from_mins(1));
    for (advance, state, expect) in [
        (0, "a", true),
        (0, "b", true),
        (1, "a", false),
        (1, "b", false),
        (57, "b", false),
        (1, "a", true),
        (599, "a", false),
        (1, "a", true),
    ] {
        tokio::time::advance(Duration::from_secs(advance)).await;
        assert_eq!(memory.changed(NODE, "Verdict", state), expect, "{state} after {advance} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fact_is_reported_once_and_the_memory_is_bounded() {
    let memory = ReportMemory::new(Duration::ZERO);
    assert!(memory.first(NODE, "InvalidLabel", "a"));
    tokio::time::advance(REPEAT * 10).await;
    assert!(!memory.first(NODE, "InvalidLabel", "a"));
    for number in 0..STATES {
        assert!(memory.first(NODE, "InvalidLabel", &number.to_string()));
    }
    assert!(memory.first(NODE, "InvalidLabel", "a"), "the oldest made room");
    memory.forget(NODE);
    assert!(memory.first(NODE, "InvalidLabel", "1"), "a new node of the name is another one");
}

/// Each attempt has a new request ID: with it, each attempt would cause an event.
#[tokio::test(start_paused = true)]
async fn the_id_of_a_request_is_no_news() {
    let memory = ReportMemory::new(Duration::ZERO);
    assert!(memory.changed("o", "topic", "not found (request req-0a1b-2c)"));
    assert!(!memory.changed("o", "topic", "not found (request req-ffff-00)"));
    assert!(memory.changed("o", "topic", "forbidden (request req-ffff-00)"));
    assert!(memory.first("o", "once", "a req-1 b"));
    assert!(!memory.first("o", "once", "a req-2 b"));
}

/// The size of a project changes with each machine, although no node is found.
#[tokio::test(start_paused = true)]
async fn a_count_is_no_news() {
    let memory = ReportMemory::new(Duration::ZERO);
    let none = |servers| format!("none of the {servers} servers of the project has the name \"n\"");
    assert!(memory.changed("o", "topic", &none(2)));
    for servers in 3..9 {
        assert!(!memory.changed("o", "topic", &none(servers)), "{servers}");
    }
    tokio::time::advance(REPEAT).await;
    assert!(memory.changed("o", "topic", &none(2)), "it is repeated");
}
