//! A person gave the wrong thing: one clear line, exit code 2, no stack trace.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::program::{Finished, Launch};

use ccm_tests::scenarios::Env;

const LIMIT: Duration = Duration::from_secs(10);

/// Exit code 2, all parts in one line of what was printed, and no panic.
fn check(what: &str, finished: &Finished, parts: &[&str]) -> Result<()> {
    ensure!(
        finished.status.code() == Some(2),
        "{what}: ended with {}:\n{}",
        finished.status,
        finished.stderr
    );
    let found = finished.stderr.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    ensure!(found, "{what}: no line names all of {parts:?}:\n{}", finished.stderr);
    ensure!(!finished.stderr.contains("panicked"), "{what}: panicked:\n{}", finished.stderr);
    // What it did before may be logged, too.
    let lines = finished.stderr.lines().filter(|line| !line.contains(" INFO "));
    ensure!(lines.count() <= 2, "{what}: more than a few lines:\n{}", finished.stderr);
    Ok(())
}

pub(super) async fn is_refused_in_one_line(env: Env) -> Result<()> {
    let garbage = env.path("garbage.yaml");
    std::fs::write(&garbage, "{[not yaml")?;
    let garbage = garbage.display();
    let unknown = env.path("unknown.yaml");
    std::fs::write(&unknown, "concurent_node_syncs: 3\n")?;
    let unknown = unknown.display();
    for (argument, parts) in [
        ("--no-such-flag=1".to_owned(), &["--no-such-flag"] as &[&str]),
        ("--concurrent-node-syncs=0".to_owned(), &["concurrent-node-syncs", "0", "from 1 to 1000"]),
        ("--concurrent-node-syncs=-3".to_owned(), &["concurrent-node-syncs", "-3"]),
        ("--concurrent-node-syncs=many".to_owned(), &["concurrent-node-syncs", "many"]),
        (
            "--node-status-update-frequency=soon".to_owned(),
            &["node-status-update-frequency", "soon"],
        ),
        ("--cloud-provider=nimbus".to_owned(), &["nimbus", "external"]),
        ("--cloud-config=/does/not/exist".to_owned(), &["/does/not/exist"]),
        (format!("--cloud-config={garbage}"), &["garbage.yaml"]),
        ("--kubeconfig=/does/not/exist".to_owned(), &["/does/not/exist"]),
        (format!("--kubeconfig={garbage}"), &["garbage.yaml"]),
        ("--config=/does/not/exist".to_owned(), &["/does/not/exist"]),
        (format!("--config={garbage}"), &["garbage.yaml"]),
        (format!("--config={unknown}"), &["concurent_node_syncs", "concurrent_node_syncs"]),
        (
            "--leader-elect-renew-deadline=20s".to_owned(),
            &["leader-elect-lease-duration", "leader-elect-renew-deadline"],
        ),
        ("--secure-port=70000".to_owned(), &["secure-port", "70000"]),
        ("--logging-format=xml".to_owned(), &["logging-format", "xml"]),
        ("surplus".to_owned(), &["surplus"]),
    ] {
        let finished = env.node_ccm().arg(argument.clone()).run(LIMIT).await?;
        check(&argument, &finished, parts)?;
    }
    let finished = env.node_ccm().env("CCM__CONCURRENT_NODE_SYNCS", "0").run(LIMIT).await?;
    check("environment", &finished, &["CCM__CONCURRENT_NODE_SYNCS", "from 1 to 1000"])?;
    let finished = Launch::new("node-ccm").run(LIMIT).await?;
    check("nothing given", &finished, &["cloud-provider"])?;
    for argument in ["--help", "--version"] {
        let finished = env.node_ccm().arg(argument).run(LIMIT).await?;
        ensure!(finished.status.success(), "{argument} ended with {}", finished.status);
        ensure!(!finished.stdout.is_empty(), "{argument} printed nothing");
    }
    Ok(())
}

pub(super) async fn several_problems_are_reported_at_once(env: Env) -> Result<()> {
    let finished = env
        .node_ccm()
        .arg("--concurrent-node-syncs=0")
        .arg("--secure-port=70000")
        .env("CCM__KUBE_API_BURST", "none")
        .run(LIMIT)
        .await?;
    ensure!(finished.status.code() == Some(2), "ended with {}", finished.status);
    for part in ["concurrent-node-syncs", "secure-port", "CCM__KUBE_API_BURST"] {
        ensure!(finished.stderr.contains(part), "{part} is not named:\n{}", finished.stderr);
    }
    Ok(())
}
