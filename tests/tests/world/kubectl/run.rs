//! Runs the steps of a chapter.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use ccm_sim::poll;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};

use super::chapter::{Action, Chapter, Step, fits};

/// How long a command, or a line of a watch, may take.
const SOON: Duration = Duration::from_secs(20);

/// The environment of a command.
pub struct Runner<'a> {
    kubectl: &'a Path,
    kubeconfig: &'a Path,
    /// kubectl keeps data about a server in its home.
    home: tempfile::TempDir,
}

impl<'a> Runner<'a> {
    /// Starts with a new home.
    pub fn new(kubectl: &'a Path, kubeconfig: &'a Path) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("quartet-kubectl-").tempdir()?;
        Ok(Self { kubectl, kubeconfig, home })
    }

    /// Runs all steps, and reports all unexpected results.
    pub async fn run(&self, chapter: &Chapter) -> Result<()> {
        let mut watch = None;
        let mut wrong = Vec::new();
        for step in &chapter.steps {
            let outcome = match step.action {
                Action::Run => self.command(step).await,
                Action::Start => self.start(step).await.map(|child| watch = Some(child)),
                Action::End => match watch.take() {
                    Some(child) => self.end(step, child).await,
                    None => bail!("line {}: no command is running here", step.line),
                },
            };
            if let Err(error) = outcome {
                let name = &chapter.name;
                wrong.push(format!("{name}.steps:{}: {error:#}", step.line));
            }
        }
        anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        Ok(())
    }

    fn program(&self, step: &Step) -> Command {
        let mut command = Command::new(self.kubectl);
        command
            .args(&step.arguments)
            .env_clear()
            // `kubectl diff` runs diff.
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.kubeconfig)
            .stdin(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn command(&self, step: &Step) -> Result<()> {
        let mut child = self.program(step).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("standard input is a pipe")?;
        // A command that does not read may end before its input is written.
        input.write_all(step.input.as_bytes()).await.ok();
        drop(input);
        let ended = tokio::time::timeout(SOON, child.wait_with_output()).await;
        let out =
            ended.with_context(|| format!("`kubectl {}` hangs", step.arguments.join(" ")))??;
        let (output, errors) = (lines(&out.stdout), lines(&out.stderr));
        let code = out.status.code();
        let right =
            fits(&step.output, &output) && fits(&step.errors, &errors) && code == Some(step.code);
        if !right {
            bail!(
                "kubectl {}\nprinted\n{}{}? {code:?}\nexpected\n{}{}? {}",
                step.arguments.join(" "),
                marked('>', &output),
                marked('!', &errors),
                marked('>', &step.output),
                marked('!', &step.errors),
                step.code
            );
        }
        Ok(())
    }

    /// Starts a watch. It prints into a file of the home, for which the later steps wait.
    async fn start(&self, step: &Step) -> Result<Child> {
        let file = std::fs::File::create(self.printed())?;
        let child = self.program(step).stdout(file.try_clone()?).stderr(file).spawn()?;
        // Output from before the watch began is not part of its changes. A watch without initial
        // output does not show that it has begun.
        let began = poll::until("the watch to print", Duration::from_secs(2), || async {
            Ok((!self.read()?.is_empty()).then_some(()))
        });
        began.await.ok();
        Ok(child)
    }

    async fn end(&self, step: &Step, mut child: Child) -> Result<()> {
        let seen = poll::until("the watch to print it all", SOON, || async {
            Ok(fits(&step.output, &self.read()?).then_some(()))
        })
        .await;
        child.kill().await?;
        if seen.is_err() {
            bail!(
                "the watch printed\n{}expected\n{}",
                marked('>', &self.read()?),
                marked('>', &step.output)
            );
        }
        Ok(())
    }

    fn printed(&self) -> std::path::PathBuf {
        self.home.path().join("watch.out")
    }

    fn read(&self) -> Result<Vec<String>> {
        Ok(lines(&std::fs::read(self.printed())?))
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

fn marked(mark: char, lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        text.push(mark);
        text.push(' ');
        text.push_str(line);
        text.push('\n');
    }
    text
}
