//! Slow connections from one address do not keep probes out.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ccm_runtime::programs;
use ccm_sim::program::Program;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use ccm_tests::scenarios::Env;

/// The number of connections that are never finished, all from the address of the probes.
const SLOW: usize = 500;
/// How long a port is probed with these connections open.
const SIEGE: Duration = Duration::from_secs(10);
/// No probe may take longer.
const LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn slow_connections_do_not_keep_probes_out(env: Env) -> Result<()> {
    for shipped in programs::shipped() {
        // route-ccm needs this flag, and the others accept each other's flags.
        let launch = env.launch(shipped.binary).arg("--cluster-cidr=10.244.0.0/16");
        let program = env.start(&launch).await?;
        let address = program.url("").replace("http://", "");
        let mut slow = JoinSet::new();
        for _ in 0..SLOW {
            slow.spawn(dawdle(address.clone()));
        }
        let probed = probe(&address).await;
        slow.shutdown().await;
        probed.with_context(|| program.log())?;
        said(&program)?;
    }
    Ok(())
}

/// Sends a request byte by byte, and starts again when it is cut off.
async fn dawdle(address: String) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(&address).await {
            for byte in b"GET /metrics HTTP/1.1" {
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
                sleep(Duration::from_millis(500)).await;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Probes as a kubelet does, with a connection for each probe, but more often.
async fn probe(address: &str) -> Result<()> {
    let (began, mut probes, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    while began.elapsed() < SIEGE {
        for path in ["/livez", "/readyz", "/metrics"] {
            let sent = Instant::now();
            let status = timeout(LIMIT, status(address, path)).await;
            let status = status.with_context(|| format!("{path}: no answer within {LIMIT:?}"))?;
            ensure!(status? == "HTTP/1.1 200", "{path}");
            slowest = slowest.max(sent.elapsed());
            probes += 1;
        }
        sleep(Duration::from_millis(50)).await;
    }
    eprintln!(
        "{SLOW} slow connections to {address}: {probes} probes, the slowest took {:.0} ms",
        slowest.as_secs_f64() * 1e3
    );
    Ok(())
}

async fn status(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.chars().take("HTTP/1.1 200".len()).collect())
}

/// Checks that the log names the peer, once and not for each connection.
fn said(program: &Program) -> Result<()> {
    let log = program.log();
    let lines = log.lines().filter(|line| line.contains("too many connections")).count();
    ensure!(lines == 1, "{lines} lines:\n{log}");
    Ok(())
}
