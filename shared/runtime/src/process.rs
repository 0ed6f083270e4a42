//! `process_*`: the kernel's data about this process, read at each scrape.

use std::fs;

use ccm_metrics::computed;
use prometheus_client::collector::Collector;
use tokio::runtime::{Handle, RuntimeMetrics};

/// The reported fields of `/proc/self/stat` (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// User and system time, in clock ticks.
    cpu_ticks: u64,
    /// Start, in clock ticks since boot.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// Parses `/proc/self/stat`. The program's name (field 2) may contain blanks and brackets, so
    /// fields are counted after the last closing bracket.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first element is field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Returns the soft limit of this name in `/proc/self/limits`. `unlimited` is infinity.
fn limit(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}

/// Returns the boot time, in seconds since the epoch, from `/proc/stat`.
fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

/// Returns the bytes received and sent, from the `IpExt` lines of `/proc/self/net/netstat`: the
/// first line has the column names, the second the values.
fn network_bytes(text: &str) -> Option<(u64, u64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = |wanted: &str| {
        let at = names.split_ascii_whitespace().position(|name| name == wanted)?;
        values.split_ascii_whitespace().nth(at)?.parse::<u64>().ok()
    };
    Some((column("InOctets")?, column("OutOctets")?))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The data that could be read; unknown values are omitted.
struct Process {
    stat: Option<Stat>,
    limits: String,
    /// Boot time, seconds since the epoch.
    boot: Option<u64>,
    open: Option<usize>,
    network: Option<(u64, u64)>,
    ticks: f64,
    page: f64,
    runtime: Option<RuntimeMetrics>,
}

impl Process {
    fn read() -> Self {
        Self {
            stat: Stat::parse(&read("/proc/self/stat")),
            limits: read("/proc/self/limits"),
            boot: boot_time(&read("/proc/stat")),
            open: fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
            network: network_bytes(&read("/proc/self/net/netstat")),
            ticks: rustix::param::clock_ticks_per_second().max(1) as f64,
            page: rustix::param::page_size() as f64,
            runtime: Handle::try_current().ok().map(|handle| handle.metrics()),
        }
    }

    fn of_runtime(&self, value: fn(&RuntimeMetrics) -> usize) -> Option<f64> {
        self.runtime.as_ref().map(|metrics| value(metrics) as f64)
    }
}

computed! {
    static PROCESS: Process = {
        /// Seconds of processor time, user and system
        Sum process_cpu_seconds = |at| at.stat.map(|stat| stat.cpu_ticks as f64 / at.ticks);
        /// Resident memory in bytes, including shared pages
        Gauge process_resident_memory_bytes = |at| at.stat.map(|stat| stat.resident_pages as f64 * at.page);
        /// Size of the address space
        Gauge process_virtual_memory_bytes = |at| at.stat.map(|stat| stat.virtual_bytes as f64);
        /// Limit of the address space
        Gauge process_virtual_memory_max_bytes = |at| limit(&at.limits, "Max address space");
        /// Open file descriptors, including connections
        Gauge process_open_fds = |at| at.open.map(|count| count as f64);
        /// Limit of open file descriptors
        Gauge process_max_fds = |at| limit(&at.limits, "Max open files");
        /// Start of the process, seconds since the Unix epoch
        Gauge process_start_time_seconds = |at| {
            at.boot.zip(at.stat).map(|(boot, stat)| boot as f64 + stat.start_ticks as f64 / at.ticks)
        };
        /// Bytes received in this network namespace
        Sum process_network_receive_bytes = |at| at.network.map(|(received, _)| received as f64);
        /// Bytes sent in this network namespace
        Sum process_network_transmit_bytes = |at| at.network.map(|(_, sent)| sent as f64);
        /// Threads that run async tasks
        [ALPHA] Gauge ccm_runtime_workers = |at| at.of_runtime(RuntimeMetrics::num_workers);
        /// Async tasks that have not ended
        [ALPHA] Gauge ccm_runtime_tasks = |at| at.of_runtime(RuntimeMetrics::num_alive_tasks);
        /// Async tasks that wait in the shared run queue
        [ALPHA] Gauge ccm_runtime_queued_tasks = |at| at.of_runtime(RuntimeMetrics::global_queue_depth);
    }
}

/// Reads `/proc/self` at each scrape and reports the values that it could read. On systems
/// without `/proc` it reports only the gauges of the async runtime.
pub(crate) fn collector() -> impl Collector {
    PROCESS.collector(|| vec![(Vec::new(), Process::read())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_behind_the_name() {
        let after =
            "S 1 2 3 4 5 6 7 8 9 10 111 222 13 14 15 16 17 18 9000 4096000 55 18446744073709551615";
        let expect = Stat {
            cpu_ticks: 333,
            start_ticks: 9000,
            virtual_bytes: 4_096_000,
            resident_pages: 55,
        };
        for name in ["node-ccm", "a b", "x) S (y", ""] {
            assert_eq!(Stat::parse(&format!("42 ({name}) {after}")), Some(expect), "{name}");
        }
        for text in [
            "",
            "42 node-ccm S 1",
            "42 (node-ccm) S 1 2 3",
            &format!("42 (x) {}", after.replace("222", "?")),
        ] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }

    #[test]
    fn limits_are_soft_limits() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 524288               files     \n\
                    Max address space         unlimited            unlimited            bytes     \n\
                    Max locks                 ?                    1                    locks     \n";
        assert_eq!(limit(text, "Max open files"), Some(1024.0));
        assert_eq!(limit(text, "Max address space"), Some(f64::INFINITY));
        assert_eq!(limit(text, "Max locks"), None);
        assert_eq!(limit(text, "Max processes"), None);
    }

    #[test]
    fn boot_time_and_network_are_found_by_name() {
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 5\n"), Some(1_700_000_000));
        assert_eq!(boot_time("cpu 1 2\n"), None);
        let text =
            "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 7 100 200\n";
        assert_eq!(network_bytes(text), Some((100, 200)));
        assert_eq!(network_bytes("IpExt: InOctets\nIpExt: 1\n"), None);
        assert_eq!(network_bytes("IpExt: InOctets OutOctets\n"), None);
    }
}
