//! The services as processes: brought up and down by the scripts of `tests/openstack`,
//! held and ended one by one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use ccm_sim::{poll, program::pid};
use rustix::process::{Signal, kill_process};

use crate::cluster::repository;

/// The releases of OpenStack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Debian 12's packages, an old cloud.
    Debian,
    /// PyPI's packages, a current cloud.
    Pypi,
}

impl FromStr for Flavour {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "debian" => Ok(Self::Debian),
            "pypi" => Ok(Self::Pypi),
            other => bail!("QUARTET_OPENSTACK={other}: must be debian or pypi"),
        }
    }
}

impl Flavour {
    const fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian",
            Self::Pypi => "pypi",
        }
    }
}

/// The running services. Dropping them ends them, unless they ran before.
pub struct Services {
    flavour: Flavour,
    state: PathBuf,
    ours: bool,
    _in_use: fs::File,
}

impl Services {
    /// Starts the services that do not run yet. The first time on a machine this installs them.
    pub async fn up(flavour: Flavour) -> Result<Self> {
        tokio::task::spawn_blocking(move || {
            let (state, ours) = up(flavour)?;
            let in_use = claim(&state)?;
            Ok(Self { flavour, state, ours, _in_use: in_use })
        })
        .await?
    }

    /// Restarts the services that have ended since.
    pub async fn repair(&self) -> Result<()> {
        let flavour = self.flavour;
        tokio::task::spawn_blocking(move || up(flavour)).await??;
        Ok(())
    }

    /// Holds a service, `nova-api` for example: it accepts connections but does not answer, until
    /// the returned value is dropped.
    pub fn freeze(&self, name: &str) -> Result<Frozen> {
        let tree = self.processes(name)?;
        // The parent is frozen first, because it would replace frozen children.
        for process in &tree {
            process.signal(Signal::STOP)?;
        }
        Ok(Frozen(tree))
    }

    /// Ends a service at once, and waits until it has ended.
    pub async fn kill(&self, name: &str) -> Result<()> {
        let tree = self.processes(name)?;
        for process in &tree {
            process.signal(Signal::KILL)?;
        }
        poll::until(&format!("{name} to have ended"), Duration::from_secs(10), || async {
            Ok((!tree.iter().any(Process::is_alive)).then_some(()))
        })
        .await
    }

    /// Runs a statement in the services' database, for states that cannot be reached by requests.
    pub fn sql(&self, statement: &str) -> Result<String> {
        let socket = format!("--socket={}", self.state.join("run/mysql.sock").display());
        let done = Command::new("mariadb")
            .args(["--no-defaults", "--user=root", &socket, "-N", "-e", statement])
            .stdin(Stdio::null())
            .output()
            .context("running mariadb")?;
        let error = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{statement}: {error}");
        Ok(String::from_utf8(done.stdout)?)
    }

    /// Sets the provisioning status of a load balancer, as a failed worker leaves it.
    pub fn set_balancer_status(&self, id: &str, status: &str) -> Result<()> {
        let set = "update octavia.load_balancer set provisioning_status";
        self.sql(&format!("{set}='{status}', updated_at=utc_timestamp() where id='{id}'")).map(drop)
    }

    /// Sets the provisioning status of the pools of a load balancer.
    pub fn set_pool_status(&self, balancer: &str, status: &str) -> Result<()> {
        let set = "update octavia.pool set provisioning_status";
        self.sql(&format!("{set}='{status}' where load_balancer_id='{balancer}'")).map(drop)
    }

    /// Returns the resident memory of all services, shared pages counted once, in bytes.
    pub fn memory(&self) -> Result<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(self.state.join("run"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|ending| ending != "pid") {
                continue;
            }
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            sum += self.processes(name)?.iter().map(Process::memory).sum::<u64>();
        }
        Ok(sum)
    }

    /// Returns the process of a service and all below it.
    fn processes(&self, name: &str) -> Result<Vec<Process>> {
        let file = self.state.join(format!("run/{name}.pid"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let (id, started) = text.trim().split_once(' ').context("an odd pid file")?;
        let root = Process { id: id.parse()?, started: started.parse()? };
        ensure!(root.is_alive(), "{name} does not run");
        let mut tree = vec![root];
        let mut at = 0;
        while let Some(parent) = tree.get(at).copied() {
            tree.extend(children(parent.id)?);
            at += 1;
        }
        Ok(tree)
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if self.ours {
            let ended = script("down", self.flavour).status();
            if !ended.is_ok_and(|status| status.success()) {
                tracing::warn!("tests/openstack/down failed: services may still run");
            }
        }
    }
}

/// A service that is held. Dropping it lets the service go on.
pub struct Frozen(Vec<Process>);

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.0 {
            if let Err(error) = process.signal(Signal::CONT) {
                tracing::debug!(%error, "a held process has ended");
            }
        }
    }
}

/// A process, not to be mistaken for another one that has its ID later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    /// The start of the process, in ticks since the machine's start.
    started: u64,
}

impl Process {
    fn is_alive(&self) -> bool {
        stat(self.id).is_some_and(|now| now.started == self.started && now.state != "Z")
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if self.is_alive() {
            kill_process(pid(self.id)?, signal)?;
        }
        Ok(())
    }

    /// Returns its share of memory in bytes; 0 if it has ended.
    fn memory(&self) -> u64 {
        let path = format!("/proc/{}/smaps_rollup", self.id);
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

struct Stat {
    state: String,
    parent: u32,
    started: u64,
}

fn stat(id: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program's name, field 2, may contain blanks and parentheses, so fields are counted after
    // it.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: (*fields.first()?).to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

fn children(parent: u32) -> Result<Vec<Process>> {
    let ids = fs::read_dir("/proc")?.flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Ok(ids
        .filter_map(|id| {
            let stat = stat(id).filter(|stat| stat.parent == parent)?;
            Some(Process { id, started: stat.started })
        })
        .collect())
}

/// Runs `up`, which prints the folder of the services' state, and whether they were
/// `started` now or `running` already.
fn up(flavour: Flavour) -> Result<(PathBuf, bool)> {
    let done = script("up", flavour).output().context("running tests/openstack/up")?;
    ensure!(done.status.success(), "tests/openstack/up ended with {}", done.status);
    let printed = String::from_utf8(done.stdout)?;
    let (state, word) = printed.trim().split_once('\n').context("tests/openstack/up is mute")?;
    Ok((PathBuf::from(state), word == "started"))
}

/// Locks the cloud for one run, because scenarios delete all objects that they find in the cloud.
fn claim(state: &Path) -> Result<fs::File> {
    let path = state.join("in-use");
    let file = fs::File::create(&path).with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("another run of the scenarios uses the services in {}", state.display())
        }
        Err(fs::TryLockError::Error(error)) => Err(error).context("claiming the services"),
    }
}

fn script(name: &str, flavour: Flavour) -> Command {
    let mut command = Command::new(repository().join("tests/openstack").join(name));
    command
        .arg(format!("--flavour={}", flavour.name()))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    command
}
