//! `make demo`: runs the real programs as child processes against a simulated cluster and a
//! simulated cloud, and shows each step on the terminal.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

mod chapters;
mod demo;
mod output;

use demo::Demo;
use output::Output;

/// Runs Quartet on a simulated cluster and cloud, and shows each step.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Run all steps once and exit; the exit code is 1 if any step failed.
    #[arg(long)]
    check: bool,

    /// How many nodes register in the first step.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..=2000))]
    nodes: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut output = Output::new();
    match run(&arguments, &mut output).await {
        Ok(()) if output.failures() == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            output.failed(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments, output: &mut Output) -> Result<()> {
    let mut demo = tokio::select! {
        demo = Demo::start_all(output, chapters::arguments) => demo?,
        () = interrupted() => return Ok(()),
    };
    let chapters = async {
        chapters::node::run(&mut demo, output, arguments.nodes.into()).await?;
        chapters::lifecycle::run(&demo, output).await?;
        chapters::route::run(&demo, output).await?;
        chapters::service::run(&demo, output).await?;
        chapters::play::run(&demo, output, arguments.nodes.into()).await
    };
    tokio::select! {
        result = chapters => result?,
        () = interrupted() => return Ok(()),
    }
    output.summary();
    if !arguments.check {
        demo.describe(output);
        chapters::play::ideas(&demo, output).await?;
        output.say("everything keeps running; Ctrl-C ends it");
        interrupted().await;
    }
    demo.stop_all().await
}

/// Waits for Ctrl-C or SIGTERM. The programs receive the terminal's Ctrl-C as well and release
/// their lease themselves.
async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => (),
        _ = terminate.recv() => (),
    }
}
