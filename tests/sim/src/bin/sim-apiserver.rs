//! The simulated API server as a program, to try `kubectl` or a controller against it.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use ccm_sim::apiserver::{ApiServer, Options};
use clap::Parser;

/// Serves a simulated Kubernetes API over plain HTTP until it is interrupted.
#[derive(Parser)]
struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8001")]
    listen: SocketAddr,
    /// A file to write a kubeconfig to.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// How many changes of each kind of object are remembered for watches.
    #[arg(long, default_value_t = Options::default().history)]
    history: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let server = ApiServer::new(Options { history: arguments.history, ..Options::default() });
    let listener = server
        .listen(arguments.listen)
        .await
        .with_context(|| format!("listening on {}", arguments.listen))?;
    tracing::info!(addr = %listener.addr, "serving");
    if let Some(file) = &arguments.kubeconfig {
        std::fs::write(file, server.kubeconfig(listener.addr))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    tokio::signal::ctrl_c().await.context("waiting for an interrupt")?;
    listener.shutdown().await;
    Ok(())
}
