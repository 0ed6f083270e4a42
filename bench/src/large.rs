//! Measures the memory of service-ccm beside Services with large annotations. The figures depend on
//! the objects and not on the build, so any build and the simulated API server are good enough.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::{
    apiserver::Options,
    poll,
    program::{Launch, Program},
    served::ServedCloud,
};
use ccm_tests::{
    cluster::{Cluster, simulated::SimulatedCluster},
    services,
};
use serde_json::json;
use tokio::time::sleep;

/// The bytes of each annotation.
const BYTES: usize = 200_000;
/// The limit of the manifests, in bytes.
const LIMIT: u64 = 192 << 20;
/// The memory that Services of other classes may take, in bytes.
const NOT_SERVED: u64 = 64_000_000;
/// The simulated API server answers slowly while it changes many large objects.
const PATIENT: [&str; 3] = [
    "--leader-elect-lease-duration=5m",
    "--leader-elect-renew-deadline=4m",
    "--leader-elect-retry-period=5s",
];
/// The longest wait: a debug build takes its time.
const LIMIT_OF_TIME: Duration = Duration::from_mins(20);

/// Services of one kind.
struct Case {
    what: &'static str,
    annotation: &'static str,
    class: Option<&'static str>,
    /// The state of all their load balancers in the end.
    state: Option<&'static str>,
    wanted: u64,
}

const CASES: [Case; 3] = [
    Case {
        what: "of a class that is not served",
        annotation: "sim/large",
        class: Some("example.com/other"),
        state: None,
        wanted: NOT_SERVED,
    },
    Case {
        what: "served, with an annotation that nobody reads",
        annotation: "example.com/large",
        class: None,
        state: Some("provisioned"),
        wanted: LIMIT,
    },
    Case {
        what: "served, with an annotation of the provider, which is too large",
        annotation: "sim/large",
        class: None,
        state: Some("failing"),
        wanted: LIMIT,
    },
];

/// Prints the memory of service-ccm beside `count` Services of each kind.
pub async fn measure(count: usize) -> Result<()> {
    println!(
        "-- service-ccm, simulated API server, a long lease: {count} Services with an annotation of {} KB each",
        BYTES / 1000
    );
    for case in CASES {
        one(&case, count).await?;
    }
    Ok(())
}

async fn one(case: &Case, count: usize) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("quartet-large-").tempdir()?;
    // A real API server keeps old versions for five minutes: a list that reads many pages needs
    // them while the program writes.
    let options = Options { history: 3 * count, ..Options::default() };
    let cluster = SimulatedCluster::start_with(options).await?;
    let large = "x".repeat(BYTES);
    for number in 0..count {
        let mut service = services::service(&format!("web-{number}"));
        service["metadata"]["annotations"] = json!({case.annotation: large});
        service["spec"]["loadBalancerClass"] = json!(case.class);
        cluster.create(service)?;
    }
    let cluster = Cluster::Simulated(cluster);
    let served = ServedCloud::start(folder.path()).await?;
    let launch =
        Launch::controller("service-ccm", cluster.kubeconfig(), "external", served.config());
    let launch = PATIENT.iter().fold(launch, |launch, one| launch.arg(*one));
    for start in ["first start", "restart"] {
        let program = launch.start(folder.path())?;
        poll::until("service-ccm to be ready and to lead", LIMIT_OF_TIME, || async {
            let is_ready = matches!(program.get("/readyz").await, Ok((200, _)));
            Ok((is_ready && program.leads().await?).then_some(()))
        })
        .await?;
        settled(case, &program, count).await?;
        let (peak, now) = (program.peak_bytes()?, program.resident_bytes()?);
        println!(
            "{}, {start}: {:.1} MB at most, {:.1} MB in the end (wanted: below {:.1} MB)",
            case.what,
            peak as f64 / 1e6,
            now as f64 / 1e6,
            case.wanted as f64 / 1e6
        );
        ensure!(program.terminate().await?.success(), "it ends in order");
    }
    served.pause().await?;
    cluster.stop().await
}

/// Waits until all load balancers have their final state, and a while longer.
async fn settled(case: &Case, program: &Program, count: usize) -> Result<()> {
    if let Some(state) = case.state {
        let sample = format!("ccm_service_load_balancers{{state=\"{state}\"");
        poll::until(
            &format!("{count} load balancers in the state {state}"),
            LIMIT_OF_TIME,
            || async {
                let so_far = program.metric(&sample).await?;
                Ok((so_far + 0.5 > count as f64).then_some(()))
            },
        )
        .await?;
    }
    sleep(Duration::from_secs(20)).await;
    Ok(())
}
