use ccm_testing::Log;
use tracing::subscriber::with_default;

use super::{LogFormat, LogSettings, check_filter, logger};

fn settings(verbosity: u8, filter: Option<&str>) -> LogSettings {
    LogSettings { verbosity, filter: filter.map(str::to_owned), format: LogFormat::Text }
}

/// Returns the lines that pass: our own at three levels, libraries' at warn and error.
fn come_through(settings: &LogSettings) -> String {
    let lines = Log::new();
    let (subscriber, _) = logger(settings, lines.clone());
    with_default(subscriber, || {
        tracing::info!(target: "ccm_controller::queue", "one");
        tracing::debug!(target: "ccm_controller::queue", "two");
        tracing::trace!(target: "node_ccm", "three");
        tracing::warn!(target: "hyper::proto", "four");
        tracing::info!(target: "kube_runtime::watcher", "five");
        tracing::warn!(target: "kube_client::client", "six body={{secret}}");
        tracing::warn!(target: "kube_runtime::watcher", "eight");
        tracing::error!(target: "kube_client::client", "seven");
    });
    let text = lines.take();
    let words = ["one", "two", "three", "four", "five", "six", "eight", "seven"];
    words
        .iter()
        .filter(|word| text.contains(&format!(": {word}")))
        .copied()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn verbosity_and_filter_choose_the_levels() {
    let check = |verbosity, filter, expect: &str| {
        assert_eq!(come_through(&settings(verbosity, filter)), expect, "{verbosity} {filter:?}");
    };
    check(0, None, "one four seven");
    check(3, None, "one four seven");
    check(4, None, "one two four seven");
    check(6, None, "one two three four seven");
    check(9, Some("warn"), "four seven");
    check(0, Some("warn,ccm_controller=debug"), "one two four seven");
    check(0, Some("info,kube_runtime=info"), "one four five eight seven");
}

#[test]
fn bodies_are_never_logged() {
    for filter in ["trace,kube_client=trace", "kube_client::client=warn", "off,kube_client=debug"] {
        assert!(!come_through(&settings(9, Some(filter))).contains("six"), "{filter}");
    }
}

#[test]
fn levels_change_while_the_process_runs() {
    let lines = Log::new();
    let (subscriber, control) = logger(&settings(0, None), lines.clone());
    with_default(subscriber, || {
        let say = || tracing::debug!(target: "ccm_runtime::program", "detail");
        say();
        assert_eq!(lines.take(), "");
        control.apply(&settings(4, None));
        say();
        assert!(lines.take().contains("detail"));
        control.apply(&settings(0, None));
        say();
        assert_eq!(lines.take(), "");
    });
}

#[test]
fn json_has_fields_of_its_own() {
    let lines = Log::new();
    let settings = LogSettings { format: LogFormat::Json, ..settings(0, None) };
    let (subscriber, _) = logger(&settings, lines.clone());
    with_default(subscriber, || {
        let _task = tracing::info_span!("run", task = "sync-1").entered();
        tracing::info!(node = "n-1", "initialised");
    });
    let line: serde_json::Value = serde_json::from_str(lines.take().trim()).unwrap();
    let field = |pointer: &str| {
        line.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
    };
    assert_eq!(
        (field("/level"), field("/message"), field("/node")),
        ("INFO".into(), "initialised".into(), "n-1".into())
    );
    assert_eq!(field("/span/task"), "sync-1");
}

#[test]
fn filters_are_checked() {
    for good in
        ["info", "off", "info,ccm_runtime::leadership=debug", "warn,[task]=debug", "hyper=trace"]
    {
        assert_eq!(check_filter(good), Ok(()), "{good}");
    }
    for bad in
        ["", "inof", "info,", "ccm=verbose", "ccm=debug,inof", "[", "info;debug", "info ccm=debug"]
    {
        assert!(check_filter(bad).is_err(), "{bad}");
    }
}
