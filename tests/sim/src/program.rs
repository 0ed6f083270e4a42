//! The built programs as child processes: start, inspect, signal, stop.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use tokio::process::{Child, Command};

use crate::poll;

/// Returns the folder of the built programs: the running program's folder, or `QUARTET_BIN`.
pub fn binaries() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("QUARTET_BIN") {
        return Ok(PathBuf::from(folder));
    }
    let this = std::env::current_exe()?;
    let mut folder = this.parent().context("a program has a folder")?;
    if folder.ends_with("deps") {
        folder = folder.parent().context("deps has a parent")?;
    }
    Ok(folder.to_path_buf())
}

/// How to start a program.
pub struct Launch {
    name: String,
    build: Option<PathBuf>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Launch {
    /// Creates the program with this name, without arguments.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), build: None, arguments: Vec::new(), environment: Vec::new() }
    }

    /// Returns the controller of this name against this cluster and this cloud.
    pub fn controller(name: &str, kubeconfig: &Path, provider: &str, cloud_config: &Path) -> Self {
        Self::new(name)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--cloud-provider={provider}"))
            .arg(format!("--cloud-config={}", cloud_config.display()))
            .arg("--bind-address=127.0.0.1")
    }

    /// Starts this file instead, such as another build of the program.
    #[must_use]
    pub fn built_as(mut self, file: &Path) -> Self {
        self.build = Some(file.to_owned());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds a variable to the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Starts it with its log in `folder`, on a free port.
    pub fn start(&self, folder: &Path) -> Result<Program> {
        let port = free_port()?;
        let log = folder.join(format!("{}-{port}.log", self.name));
        let file = std::fs::File::create(&log)?;
        let child = self
            .command()?
            .arg(format!("--secure-port={port}"))
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {}", self.name))?;
        Ok(Program { name: self.name.clone(), child, port, log })
    }

    /// Runs it until it exits, which must happen within `limit`.
    pub async fn run(&self, limit: Duration) -> Result<Finished> {
        let child = self.command()?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let out =
            tokio::time::timeout(limit, child.wait_with_output()).await.with_context(|| {
                format!("{} {:?} still runs after {limit:?}", self.name, self.arguments)
            })??;
        Ok(Finished {
            status: out.status,
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        })
    }

    fn command(&self) -> Result<Command> {
        let path = match &self.build {
            Some(file) => file.clone(),
            None => binaries()?.join(&self.name),
        };
        if !path.exists() {
            bail!("{} is not built; run `cargo build`", path.display());
        }
        let mut command = Command::new(path);
        command
            .args(&self.arguments)
            .env_remove("KUBECONFIG")
            .envs(image_environment())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }
}

/// Returns the environment that the image gives to a program, so that tests and measurements use
/// the shipped environment.
fn image_environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../../manifests/image/Containerfile").lines();
    lines.filter_map(|line| line.strip_prefix("ENV ")?.split_once('='))
}

/// A program that has exited.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its output.
    pub stdout: String,
    /// Its log.
    pub stderr: String,
}

/// A running program. Dropping it kills it.
pub struct Program {
    name: String,
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Program {
    /// Returns the URL of one of its pages.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns its process ID.
    pub fn id(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Gets one of its pages: status and body.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let answer = tokio::time::timeout(Duration::from_secs(5), async {
            let answer = client.get(self.url(path).parse()?).await?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await?.to_bytes();
            anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
        });
        answer
            .await
            .map_err(anyhow::Error::from)
            .flatten()
            .with_context(|| format!("{} does not answer on {path}:\n{}", self.name, self.log()))
    }

    /// Returns all samples of `/metrics`: name with labels, and value.
    pub async fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let (status, text) = self.get("/metrics").await?;
        anyhow::ensure!(status == 200, "/metrics answers {status}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(samples.collect())
    }

    /// Returns the sum of all samples whose name, followed by labels, starts with this.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        Ok(self
            .metrics()
            .await?
            .iter()
            .filter(|(sample, _)| sample.starts_with(name))
            .map(|(_, value)| value)
            .sum())
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&mut self) -> Result<()> {
        let limit = Duration::from_secs(20);
        let name = self.name.clone();
        let end = tokio::time::Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("{name} ended with {status}:\n{}", self.log());
            }
            if matches!(self.get("/readyz").await, Ok((200, _))) {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                let page = self.get("/readyz?verbose").await.unwrap_or_default().1;
                bail!("{name} is not ready after {limit:?}:\n{page}\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns true if it reports that it leads.
    pub async fn leads(&self) -> Result<bool> {
        Ok(self.metric("leader_election_master_status{").await? > 0.0)
    }

    /// Waits until it leads.
    pub async fn leading(&self, limit: Duration) -> Result<()> {
        poll::until(&format!("{} to lead", self.name), limit, || async {
            Ok(self.leads().await?.then_some(()))
        })
        .await
        .with_context(|| self.log())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.keep_record();
        Ok(kill_process(pid(self.id()?)?, signal)?)
    }

    /// Sends SIGTERM and returns the exit status.
    pub async fn terminate(mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(Duration::from_secs(40)).await
    }

    /// Keeps its page `/record` as a file in the folder `QUARTET_RECORDS`, if that is set, so that
    /// it can be replayed. It blocks, so that it can be called when a test has ended.
    fn keep_record(&self) {
        let Some(folder) = std::env::var_os("QUARTET_RECORDS") else { return };
        let mut page = Vec::new();
        // To a client that uses HTTP/1.0 the server sends the page without chunks.
        let read = TcpStream::connect(("127.0.0.1", self.port)).and_then(|mut stream| {
            // A frozen process does not answer.
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /record HTTP/1.0\r\n\r\n")?;
            stream.read_to_end(&mut page)
        });
        let end = page.windows(4).position(|it| it == b"\r\n\r\n").map(|end| end + 4);
        let (Ok(_), Some(record)) = (read, end.and_then(|end| page.get(end..))) else { return };
        let file = format!("{}-{}-{}.jsonl", self.name, std::process::id(), self.port);
        if page.starts_with(b"HTTP/1.0 200") && !record.is_empty() {
            std::fs::write(Path::new(&folder).join(file), record).unwrap_or_default();
        }
    }

    /// Waits until it exits.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        tokio::time::timeout(limit, self.child.wait())
            .await
            .with_context(|| format!("{} still runs after {limit:?}:\n{}", self.name, self.log()))?
            .map_err(Into::into)
    }

    /// Returns the processor time used so far, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64> {
        cpu_seconds(self.id()?)
    }

    /// Returns its resident memory in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// Returns the most resident memory that it has had, in bytes.
    pub fn peak_bytes(&self) -> Result<u64> {
        self.status_bytes("VmHWM:")
    }

    /// Returns the part of its resident memory that does not belong to its file, in bytes. The
    /// pages of the file belong to the kernel's cache, which all processes of one file share.
    pub fn private_bytes(&self) -> Result<u64> {
        self.status_bytes("RssAnon:")
    }

    fn status_bytes(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let line = line.with_context(|| format!("no {field}"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.keep_record();
    }
}

/// Returns a free port that this process has not returned before. It is below Linux's ephemeral
/// range: no other process gets it by chance before the intended program listens.
pub fn free_port() -> Result<u16> {
    const PORTS: std::ops::Range<u16> = 26_000..32_768;
    static NAMED: AtomicU32 = AtomicU32::new(0);
    // Concurrent processes begin at different ports.
    let first = std::process::id().wrapping_mul(101);
    let many = u32::from(PORTS.end - PORTS.start);
    for _ in PORTS {
        let offset = first.wrapping_add(NAMED.fetch_add(1, Relaxed)) % many;
        let port = PORTS.start + u16::try_from(offset)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("all ports of {PORTS:?} are taken")
}

/// Returns the process ID for system calls.
pub fn pid(id: u32) -> Result<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw).context("not a process ID")
}

/// Returns the processor time of a process so far, in seconds.
pub fn cpu_seconds(id: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The program's name, field 2, may contain blanks and parentheses, so fields are counted after
    // it.
    let fields: Vec<_> =
        stat.rsplit_once(')').context("odd stat line")?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok((ticks(11) + ticks(12)) as f64 / rustix::param::clock_ticks_per_second() as f64)
}
