//! `make demo`: runs the real programs as child processes against a simulated cluster and a
//! simulated cloud, and shows each step on the terminal.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

mod chapters;
mod stage;
mod story;

use stage::Stage;
use story::Story;

/// Shows Quartet at work on a simulated cluster and cloud.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Tell the story once and end; the exit code is 1 if any step failed.
    #[arg(long)]
    check: bool,

    /// How many nodes register in the first step.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=2000))]
    nodes: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut story = Story::new();
    match run(&arguments, &mut story).await {
        Ok(()) if story.failures() == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            story.failed(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments, story: &mut Story) -> Result<()> {
    let mut stage = tokio::select! {
        stage = Stage::set(story, chapters::arguments) => stage?,
        () = interrupted() => return Ok(()),
    };
    let chapters = async {
        chapters::node::tell(&mut stage, story, arguments.nodes.into()).await?;
        chapters::lifecycle::tell(&stage, story).await
    };
    tokio::select! {
        told = chapters => told?,
        () = interrupted() => return Ok(()),
    }
    story.summary();
    if !arguments.check {
        stage.describe(story);
        interrupted().await;
    }
    stage.strike().await
}

/// Ctrl-C or SIGTERM. The programs receive the terminal's Ctrl-C as well and release their
/// lease themselves.
async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => (),
        _ = terminate.recv() => (),
    }
}
