use std::time::Duration;

use ccm_settings::{Changes, Problems};
use proptest::prelude::*;

use super::Reload;
use crate::{
    health::{Health, Verdict},
    metrics::Metrics,
    settings::sample::{SampleSettings, sample},
};

struct Bench {
    reload: Reload<SampleSettings>,
    health: Health,
    metrics: Metrics,
}

fn bench(arguments: &[&str], file: &str) -> Bench {
    let (health, metrics) = (Health::default(), Metrics::new());
    let loaded = sample(arguments, &[], Some(file)).unwrap();
    Bench { reload: Reload::new(loaded, &health, &metrics), health, metrics }
}

impl Bench {
    fn look(&mut self, text: &str) -> Result<Changes, Problems> {
        self.reload.take(Ok(text.to_owned()))
    }

    fn condition(&self) -> Verdict {
        self.health.findings().into_iter().find(|finding| finding.name == "config").unwrap().verdict
    }

    /// Returns Successes, failures, valid.
    fn counts(&self) -> (u64, u64, u64) {
        let text = self.metrics.encode().unwrap();
        let sample = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("{name}:\n{text}"));
            line.trim().parse().unwrap()
        };
        (
            sample("ccm_config_reloads_total{result=\"success\"}"),
            sample("ccm_config_reloads_total{result=\"failure\"}"),
            sample("ccm_config_valid "),
        )
    }
}

fn taken(changed: &[&str], restart: &[&str]) -> Changes {
    let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    Changes { changed: owned(changed), restart: owned(restart), ..Changes::default() }
}

#[test]
fn live_settings_change_and_are_published() {
    let mut bench = bench(&[], "concurrent_node_syncs: 2");
    let (mut own, common) = (bench.reload.own(), bench.reload.common());
    assert_eq!(bench.counts(), (0, 0, 1));
    assert_eq!(
        bench.look("concurrent_node_syncs: 3\nkube_api_qps: 7"),
        Ok(taken(&["concurrent_node_syncs", "kube_api_qps"], &[]))
    );
    assert!(own.has_changed().unwrap());
    assert_eq!(own.borrow_and_update().syncs, 3);
    assert_eq!(common.borrow().kube.requests.per_second, Some(7.0));
    assert_eq!(bench.counts(), (1, 0, 1));
    assert!(bench.reload.page().load().contains("\"value\": \"3\""));
    // A new text with the same values publishes nothing.
    let again = "concurrent_node_syncs: 3\nkube_api_qps: 7 # as before";
    assert_eq!(bench.look(again), Ok(taken(&[], &[])));
    assert!(!own.has_changed().unwrap());
}

/// Returns the warnings without the folder of the file, which differs from run to run.
fn warnings(changes: &Changes) -> Vec<String> {
    let name = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let plain = |line: &String| line.split(' ').map(name).collect::<Vec<_>>().join(" ");
    changes.warnings.iter().map(plain).collect()
}

#[test]
fn a_setting_that_disappears_gets_its_default_with_a_warning() {
    let mut bench = bench(&[], "concurrent_node_syncs: 2\nkube_api_qps: 7\npage_size: 5");
    let (own, common) = (bench.reload.own(), bench.reload.common());
    let changes = bench.look("v: 0").unwrap();
    assert_eq!(changes.changed, ["concurrent_node_syncs", "kube_api_qps"]);
    assert_eq!(changes.restart, ["page_size"], "the value that needs a restart stays");
    let expect = [
        "concurrent_node_syncs is no longer in ccm.yaml: the default \"32\" takes the place of \"2\"",
        "kube_api_qps is no longer in ccm.yaml: the default \"1000\" takes the place of \"7\"",
    ];
    assert_eq!(warnings(&changes), expect);
    assert_eq!((own.borrow().syncs, own.borrow().page_size), (32, 5));
    assert_eq!(common.borrow().kube.requests.per_second, Some(1000.0));
    // Removing a value that equals the default has no effect.
    let default = bench.look("concurrent_node_syncs: 32").unwrap();
    assert_eq!((warnings(&default), default.changed), (Vec::new(), Vec::new()));
    assert_eq!(warnings(&bench.look("page_size: 5").unwrap()), [""; 0]);
}

#[test]
fn an_emergency_stop_that_disappears_stays() {
    for stop in ["0", "0%", "'0 %'"] {
        let mut bench = bench(&[], &format!("deletions: {stop}\npage_size: 5"));
        let own = bench.reload.own();
        let stop = own.borrow().deletions.clone();
        for shrunken in ["page_size: 5", "page_size: 5 # again"] {
            let changes = bench.look(shrunken).unwrap();
            assert_eq!((&*own.borrow().deletions, changes.changed.len()), (&*stop, 0));
            assert_eq!(changes.stops, ["deletions"]);
            let expect = format!(
                "deletions is no longer in ccm.yaml: it was an emergency stop, so {stop:?} stays in force until the \
                 file names another value (the default is \"10%\")"
            );
            assert_eq!(warnings(&changes), [expect]);
            let detail = bench.condition().detail().to_owned();
            assert!(
                detail.ends_with("; deletions is no longer in the file and stays 0"),
                "{detail}"
            );
        }
        assert_eq!(bench.look("deletions: 3%\npage_size: 5"), Ok(taken(&["deletions"], &[])));
        assert_eq!(own.borrow().deletions, "3%");
        let changes = bench.look("page_size: 5").unwrap();
        assert_eq!((&*own.borrow().deletions, changes.stops.len()), ("10%", 0));
    }
}

#[test]
fn a_file_without_settings_or_without_bounds_is_refused() {
    let mut bench = bench(&[], "deletions: 0\nconcurrent_node_syncs: 2");
    let own = bench.reload.own();
    let deep = "- ".repeat(20_000);
    for (text, expect) in [
        ("", "must hold at least one setting"),
        ("# nothing\n", "must hold at least one setting"),
        ("{}", "must hold at least one setting"),
        ("page_size:", "must have a value"),
        ("page_size: 5\ndeletions:", "deletions"),
        (&deep, "line 1: cannot be read: more than 64 levels of nesting"),
    ] {
        let problems = bench.look(text).unwrap_err().to_string();
        assert!(problems.contains(expect), "{problems}");
        let Verdict::Failed(reason) = bench.condition() else { panic!("must be shown") };
        assert!(reason.contains(expect), "{reason}");
        assert_eq!((&*own.borrow().deletions, own.borrow().syncs), ("0", 2));
    }
    assert_eq!(bench.counts(), (0, 6, 0));
}

#[test]
fn an_invalid_version_is_refused_as_a_whole() {
    let mut bench = bench(&[], "concurrent_node_syncs: 2");
    let own = bench.reload.own();
    let problems =
        bench.look("concurrent_node_syncs: 3\npage_size: 0\nno_such_thing: 1").unwrap_err();
    assert_eq!(problems.iter().count(), 2, "{problems}");
    assert_eq!(own.borrow().syncs, 2, "the old version stays");
    assert_eq!(bench.counts(), (0, 1, 0));
    let Verdict::Failed(reason) = bench.condition() else { panic!("must be shown") };
    assert!(reason.contains("no_such_thing") && reason.contains("page_size: 0"), "{reason}");
    assert!(bench.health.is_ready(), "an invalid file must not make a working process unready");
    // The first version is valid again.
    assert_eq!(bench.look("concurrent_node_syncs: 2"), Ok(taken(&[], &[])));
    assert_eq!(bench.counts(), (1, 1, 1));
    assert!(bench.condition().is_passed());
}

#[test]
fn what_needs_a_restart_is_named_and_stays() {
    let mut bench = bench(&[], "page_size: 5");
    let (own, common) = (bench.reload.own(), bench.reload.common());
    let look = bench.look("page_size: 6\nsecure_port: 1\nconcurrent_node_syncs: 9");
    assert_eq!(look, Ok(taken(&["concurrent_node_syncs"], &["page_size", "secure_port"])));
    assert_eq!((own.borrow().page_size, own.borrow().syncs), (5, 9));
    assert_eq!(common.borrow().pages.as_ref().unwrap().address.port(), 10258);
    let detail = bench.condition().detail().to_owned();
    assert!(detail.ends_with("; a restart is needed for page_size, secure_port"), "{detail}");
}

#[test]
fn a_flag_still_wins_over_a_new_file() {
    let mut bench = bench(&["--concurrent-node-syncs=4"], "concurrent_node_syncs: 2");
    let own = bench.reload.own();
    assert_eq!(bench.look("concurrent_node_syncs: 3"), Ok(taken(&[], &[])));
    assert_eq!(own.borrow().syncs, 4);
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let mut bench = bench(&[], "page_size: 5");
    bench.reload.take(Err("there is no such file".to_owned())).unwrap_err();
    assert_eq!(bench.counts(), (0, 1, 0));
    let Verdict::Failed(reason) = bench.condition() else { panic!("must be shown") };
    assert!(reason.ends_with("must be a readable file: there is no such file"), "{reason}");
    assert_eq!(bench.look("page_size: 5"), Ok(taken(&[], &[])));
    assert_eq!(bench.counts(), (1, 1, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_file_makes_it_panic(text in "[-a-z_0-9:,'\"\\[\\]{}#&*!|>%@ \n\u{e4}]{0,60}") {
        let _outcome = bench(&[], "page_size: 5").look(&text);
    }
}

#[tokio::test(start_paused = true)]
async fn the_file_is_followed_while_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("live.yaml");
    std::fs::write(&path, "concurrent_node_syncs: 2").unwrap();
    let flag = format!("--config={}", path.display());
    let loaded = sample(&[&flag], &[], None).unwrap();
    let reload: Reload<SampleSettings> = Reload::new(loaded, &Health::default(), &Metrics::new());
    let mut own = reload.own();
    let token = tokio_util::sync::CancellationToken::new();
    let run = reload.run(token.clone());
    let scenario = async {
        // The file is renamed, so that a reader never sees a partial file, because the first poll
        // is under way.
        let aside = folder.path().join("new.yaml");
        std::fs::write(&aside, "concurrent_node_syncs: 3").unwrap();
        std::fs::rename(&aside, &path).unwrap();
        tokio::time::timeout(Duration::from_mins(1), own.changed()).await.unwrap().unwrap();
        assert_eq!(own.borrow_and_update().syncs, 3);
        token.cancel();
    };
    tokio::join!(run, scenario);
}
