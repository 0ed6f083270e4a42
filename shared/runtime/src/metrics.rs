//! The registry behind `/metrics`, and the metrics common to all programs.
//!
//! A metric has upstream's name where upstream has one, so that dashboards keep working; new
//! names start with `ccm_`. A help text starts with the metric's stability in brackets, as in
//! Kubernetes components. Each component owns a struct of its metrics and registers it here;
//! there are no global metrics, so each test has its own registry. An object's name is never
//! a label.

use std::{collections::HashSet, env::consts, fmt, sync::Arc};

use ccm_metrics::{Family, Gauge, MetricsSink, Registry, Text, metrics};
use parking_lot::Mutex;
use prometheus_client::{collector::Collector, encoding::text};

use crate::{
    identity::{COMMIT, VERSION},
    process,
};

/// Histogram buckets in seconds for one network request, same as client-go's
/// `rest_client_request_duration_seconds`.
pub const REQUEST_SECONDS: [f64; 12] =
    [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// The value of the label `manager` of `running_managed_controllers`: dashboards for the
/// monolithic cloud controller manager select on it.
const MANAGER: &str = "cloud-controller-manager";

/// Tree state (`clean` or `dirty`) and date (RFC 3339) of the commit, as `make build` passes them;
/// otherwise empty.
const GIT: [Option<&str>; 2] =
    [option_env!("QUARTET_GIT_TREE_STATE"), option_env!("QUARTET_BUILD_DATE")];

metrics! {
    struct ProgramMetrics {
        /// Build information; the version is Quartet's, the value is 1
        [ALPHA] kubernetes_build_info {
            major, minor, git_version, git_commit, git_tree_state, build_date, go_version, compiler, platform
        } => upstream: Family<Gauge, [Text; 9]>;
        /// The program and its version; the value is 1
        [ALPHA] ccm_build_info { program, version, commit, platform } => build: Family<Gauge, [Text; 4]>;
        /// 1 while the controller runs on the leader, 0 after it has stopped
        [BETA] running_managed_controllers { name, manager } => running: Family<Gauge, (&'static str, &'static str)>;
    }
}

impl ProgramMetrics {
    fn built(&self, program: &'static str) {
        let platform = format!("{}/{}", consts::OS, consts::ARCH);
        let git_version = format!("v{VERSION}");
        let [tree_state, date] = GIT.map(Option::unwrap_or_default);
        let mut parts = VERSION.split('.');
        let mut part = || parts.next().unwrap_or_default();
        let upstream =
            [part(), part(), &git_version, COMMIT, tree_state, date, "", "rustc", &platform];
        self.upstream.series(upstream.map(|text| text.to_owned().into())).set(1);
        let own = [program, VERSION, COMMIT, &platform];
        self.build.series(own.map(|text| text.to_owned().into())).set(1);
    }
}

/// The registry, shared by all components of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    program: ProgramMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates a registry that reports the build and the process, without a program's name.
    pub fn new() -> Self {
        Self::for_program("")
    }

    /// Returns the registry of the program of this name, which is a label of `ccm_build_info`: with
    /// it dashboards distinguish the programs, however they are scraped.
    pub fn for_program(program: &'static str) -> Self {
        let own = ProgramMetrics::default();
        own.built(program);
        let mut registry = Registry::default();
        own.register(&mut registry);
        registry.register_collector(Box::new(process::collector()));
        Self { registry: Arc::new(Mutex::new(registry)), program: own }
    }

    /// Adds metrics, for instance `metrics.with(|registry| mine.register(registry))`.
    pub fn with<R>(&self, add: impl FnOnce(&mut Registry) -> R) -> R {
        add(&mut self.registry.lock())
    }

    /// Adds a collector, which computes its values at each scrape.
    pub fn collect(&self, collector: impl Collector) {
        self.with(|registry| registry.register_collector(Box::new(collector)));
    }

    /// Returns all metrics in the OpenMetrics text format.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    /// Returns all metrics in Prometheus' older text format.
    pub fn encode_classic(&self) -> Result<String, fmt::Error> {
        Ok(classic(&self.encode()?))
    }

    /// Reports whether the controller of this name runs.
    pub fn set_running(&self, name: &'static str, running: bool) {
        self.program.running.series((name, MANAGER)).set(running.into());
    }
}

/// Returns a page in OpenMetrics as Prometheus' older text format: the description of a counter
/// names it as its series do, with `_total`, and the mark of the end is missing.
pub(crate) fn classic(page: &str) -> String {
    let counters: HashSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let line = |line: &str| match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
        ["#", "EOF"] => String::new(),
        ["#", word @ ("HELP" | "TYPE"), name, rest] if counters.contains(name) => {
            format!("# {word} {name}_total {rest}\n")
        }
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

impl MetricsSink for Metrics {
    fn add(&self, add: &mut dyn FnMut(&mut Registry)) {
        self.with(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_and_the_process_are_reported() {
        let text = Metrics::for_program("sample-ccm").encode().unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let upstream =
            text.lines().find(|line| line.starts_with("kubernetes_build_info{")).unwrap();
        for label in [
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
        ] {
            assert!(upstream.contains(&format!("{label}=\"")), "{label} in {upstream}");
        }
        assert!(
            upstream.contains(&format!("git_version=\"v{version}\"")) && upstream.ends_with(" 1"),
            "{upstream}"
        );
        let own = text.lines().find(|line| line.starts_with("ccm_build_info{")).unwrap();
        assert!(own.contains(&format!("version=\"{version}\"")) && own.ends_with(" 1"), "{own}");
        assert!(own.contains("program=\"sample-ccm\""), "{own}");
        let commit = format!("commit=\"{COMMIT}\"");
        assert!(!COMMIT.is_empty() && own.contains(&commit), "{own}");
        assert!(upstream.contains(&format!("git_{commit}")), "{upstream}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_reported() {
        let text = Metrics::new().encode().unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name));
            line.unwrap_or_else(|| panic!("{name} in\n{text}"))
                .rsplit(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_virtual_memory_max_bytes") > 0.0);
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        let age = ccm_base::clock::unix_seconds() - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "started {age} s ago");
        assert!(!text.contains("ccm_runtime_workers "), "there is no async runtime here");
    }

    #[tokio::test]
    async fn the_async_runtime_is_reported() {
        let text = Metrics::new().encode().unwrap();
        assert!(text.contains("ccm_runtime_workers 1"), "{text}");
    }

    #[test]
    fn a_provider_adds_metrics_of_its_own() {
        let metrics = Metrics::new();
        let (sink, calls): (&dyn MetricsSink, Gauge) = (&metrics, Gauge::default());
        sink.add(&mut |registry| registry.register("cloud_calls", "[ALPHA] Calls", calls.clone()));
        calls.set(3);
        assert!(metrics.encode().unwrap().contains("cloud_calls 3\n"));
    }

    #[test]
    fn the_older_format_names_counters_as_their_series() {
        let page = "# HELP a_calls Calls, \"all\".\n# TYPE a_calls counter\na_calls_total{why=\"x  y\"} 1\n\
                    # HELP b Size.\n# TYPE b gauge\n# UNIT b bytes\nb 2\n# EOF\n";
        assert_eq!(
            classic(page),
            "# HELP a_calls_total Calls, \"all\".\n# TYPE a_calls_total counter\na_calls_total{why=\"x  y\"} 1\n\
             # HELP b Size.\n# TYPE b gauge\n# UNIT b bytes\nb 2\n"
        );
    }

    #[test]
    fn a_controller_runs_until_it_stops() {
        let metrics = Metrics::new();
        let line = |value: u8| {
            format!(
                "running_managed_controllers{{name=\"cloud-node\",manager=\"cloud-controller-manager\"}} {value}\n"
            )
        };
        assert!(
            !metrics.encode().unwrap().contains("running_managed_controllers{"),
            "a standby reports nothing"
        );
        metrics.set_running("cloud-node", true);
        assert!(metrics.encode().unwrap().contains(&line(1)));
        metrics.set_running("cloud-node", false);
        assert!(metrics.encode().unwrap().contains(&line(0)));
    }
}
