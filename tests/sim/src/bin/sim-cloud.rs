//! The simulated cloud as a program, to try controllers on your own cluster.

use std::{
    io::{IsTerminal as _, Write as _},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use ccm_cloud::{AddressKind, NodeAddress};
use ccm_external_server::{Listener, serve};
use ccm_sim::{
    cloud::{IDENTITY, SimCloud, SimInstance},
    cloud_pages,
};
use clap::Parser;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

/// Serves a simulated cloud by the external protocol until it is interrupted: instances, load
/// balancers and routes in memory, with faults on demand.
#[derive(Parser)]
#[command(version, after_help = format!("Pages:\n{}", cloud_pages::HELP))]
struct Arguments {
    /// Where controllers connect: unix:///path/to.sock or http://address:port. Anyone who can
    /// connect may change the cloud.
    #[arg(long, default_value = "http://127.0.0.1:8010")]
    endpoint: String,
    /// Where the pages are served; port 0 takes a free one. Anyone who can connect may change
    /// the cloud.
    #[arg(long, default_value = "127.0.0.1:8011")]
    pages: SocketAddr,
    /// A file to write for the controllers' --cloud-config.
    #[arg(long, value_name = "FILE")]
    cloud_config: Option<PathBuf>,
    /// How many instances exist at the start: node-00000, node-00001 and so on.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    instances: u32,
    /// An instance that exists at the start, by the name of its node. May be repeated.
    #[arg(long, value_name = "NAME[=ADDRESS[,ADDRESS]]", value_parser = instance)]
    instance: Vec<SimInstance>,
    /// The identity of this cloud, for controllers, until it is changed on the pages; empty if the
    /// cloud cannot tell.
    #[arg(long, value_name = "TEXT", default_value = IDENTITY)]
    identity: String,
}

/// Returns an instance whose ID is its name.
fn instance(text: &str) -> Result<SimInstance, String> {
    let (name, addresses) = text.split_once('=').unwrap_or((text, ""));
    if name.is_empty() || name.contains('/') {
        return Err("expected the name of a node".to_owned());
    }
    let mut instance = SimInstance::new(name, name);
    for text in addresses.split(',').filter(|text| !text.is_empty()) {
        let address: IpAddr = text.parse().map_err(|_| format!("{text:?} is not an IP address"))?;
        let address = NodeAddress::new(AddressKind::InternalIp, address.to_string());
        instance.addresses.push(address);
    }
    instance.addresses.push(NodeAddress::new(AddressKind::Hostname, name));
    Ok(instance)
}

#[tokio::main]
async fn main() -> ExitCode {
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(ansi).init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            writeln!(std::io::stderr(), "error: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let cloud = SimCloud::new();
    cloud.set_identity(Some(&*arguments.identity).filter(|text| !text.is_empty()));
    cloud.add_many(0, usize::try_from(arguments.instances)?);
    for instance in arguments.instance {
        cloud.add(instance);
    }
    anyhow::ensure!(
        !arguments.endpoint.starts_with("https:"),
        "--endpoint {}: this program has no certificate; use unix:// or http://",
        arguments.endpoint
    );
    let listener = Listener::bind(&arguments.endpoint).await.context("--endpoint")?;
    let pages = TcpListener::bind(arguments.pages)
        .await
        .with_context(|| format!("--pages: cannot listen on {}", arguments.pages))?;
    let endpoint = listener.endpoint().to_owned();
    if let Some(file) = &arguments.cloud_config {
        std::fs::write(file, format!("endpoint: {endpoint}\n"))
            .with_context(|| format!("--cloud-config: cannot write {}", file.display()))?;
    }
    tracing::info!(endpoint, pages = %format!("http://{}", pages.local_addr()?), "serving");
    let stop = CancellationToken::new();
    let served = serve(Arc::new(cloud.clone()), listener, None, stop.clone());
    let pages = cloud_pages::serve(cloud, pages, stop.clone());
    let mut terminate = signal(SignalKind::terminate())?;
    let stopped = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => (),
            _ = terminate.recv() => (),
        }
        stop.cancel();
    };
    let (served, (), ()) = tokio::join!(served, pages, stopped);
    served.context("serving the external protocol")
}
