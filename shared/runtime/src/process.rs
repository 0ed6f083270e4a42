//! `process_*`: what the kernel says about this process, read when it is asked for.

use std::fs;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::counter::ConstCounter,
};

use crate::metrics::encode_gauge;

/// Reads `/proc/self` at each scrape and reports what could be read. On systems
/// without `/proc` it reports nothing but the async runtime's gauges.
#[derive(Debug, Default)]
pub struct ProcessCollector;

/// The fields of `/proc/self/stat` that are reported (proc_pid_stat(5)).
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
    /// The program's name (field 2) may hold blanks and brackets: fields are counted
    /// behind the last closing bracket.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first one here is field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// The soft limit of this name in `/proc/self/limits`; `unlimited` is infinity.
fn limit(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(f64::INFINITY),
        number => number.parse().ok(),
    }
}

/// When the machine was started, in seconds since the epoch, from `/proc/stat`.
fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

/// Bytes received and sent, from the `IpExt` lines of `/proc/self/net/netstat`: one
/// names the columns, the next holds the values.
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

/// Writes values one by one; what is not known is left out.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) -> std::fmt::Result {
        let Some(value) = value else { return Ok(()) };
        encode_gauge(&mut self.0, (name, help), value)
    }

    fn counter(&mut self, name: &str, help: &str, value: Option<f64>) -> std::fmt::Result {
        let Some(value) = value else { return Ok(()) };
        let counter = ConstCounter::new(value);
        counter.encode(self.0.encode_descriptor(name, help, None, counter.metric_type())?)
    }

    fn kernel(&mut self) -> std::fmt::Result {
        let stat = Stat::parse(&read("/proc/self/stat"));
        let limits = read("/proc/self/limits");
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
        let page = rustix::param::page_size() as f64;
        let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
        let started = boot_time(&read("/proc/stat"))
            .zip(stat)
            .map(|(boot, stat)| boot as f64 + stat.start_ticks as f64 / ticks);
        let network = network_bytes(&read("/proc/self/net/netstat"));

        self.counter(
            "process_cpu_seconds",
            "Seconds of processor time, user and system.",
            stat.map(|stat| stat.cpu_ticks as f64 / ticks),
        )?;
        self.gauge(
            "process_resident_memory_bytes",
            "Resident memory: what the process holds in RAM, shared pages included.",
            stat.map(|stat| stat.resident_pages as f64 * page),
        )?;
        self.gauge(
            "process_virtual_memory_bytes",
            "Size of the address space.",
            stat.map(|stat| stat.virtual_bytes as f64),
        )?;
        self.gauge(
            "process_virtual_memory_max_bytes",
            "Limit of the address space.",
            limit(&limits, "Max address space"),
        )?;
        self.gauge(
            "process_open_fds",
            "File descriptors that are open, connections among them.",
            open,
        )?;
        self.gauge(
            "process_max_fds",
            "Limit of open file descriptors.",
            limit(&limits, "Max open files"),
        )?;
        self.gauge(
            "process_start_time_seconds",
            "Start of the process, seconds since the Unix epoch.",
            started,
        )?;
        self.counter(
            "process_network_receive_bytes",
            "Bytes received in this network namespace.",
            network.map(|(received, _)| received as f64),
        )?;
        self.counter(
            "process_network_transmit_bytes",
            "Bytes sent in this network namespace.",
            network.map(|(_, sent)| sent as f64),
        )
    }

    fn runtime(&mut self) -> std::fmt::Result {
        let metrics = tokio::runtime::Handle::try_current().ok().map(|handle| handle.metrics());
        let metrics = metrics.as_ref();
        self.gauge(
            "ccm_runtime_workers",
            "[ALPHA] Threads that run async tasks.",
            metrics.map(|metrics| metrics.num_workers() as f64),
        )?;
        self.gauge(
            "ccm_runtime_tasks",
            "[ALPHA] Async tasks that have not ended.",
            metrics.map(|metrics| metrics.num_alive_tasks() as f64),
        )?;
        self.gauge(
            "ccm_runtime_queued_tasks",
            "[ALPHA] Async tasks that wait in the shared run queue.",
            metrics.map(|metrics| metrics.global_queue_depth() as f64),
        )
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut writer = Writer(encoder);
        writer.kernel()?;
        writer.runtime()
    }
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
