//! `fuzz [--seconds=20] [--seed=N] [--inputs=N] [TARGET...]`: all targets, side by side, with random
//! inputs. `fuzz TARGET FILE...` reads these inputs. Fails when a target does, and keeps the input.

use std::{
    fs,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use ccm_base::clock;
use ccm_fuzz::{
    TARGETS, Target,
    run::{Outcome, Plan, corpus, folder, run},
    target,
};

fn main() -> anyhow::Result<ExitCode> {
    let (mut plan, mut names) =
        (Plan { time: Duration::from_secs(20), seed: random(), inputs: u64::MAX }, Vec::new());
    for word in std::env::args().skip(1) {
        match word.strip_prefix("--").and_then(|word| word.split_once('=')) {
            Some(("seconds", text)) => plan.time = Duration::from_secs(text.parse()?),
            Some(("seed", text)) => plan.seed = text.parse()?,
            Some(("inputs", text)) => plan.inputs = text.parse()?,
            Some((other, _)) => anyhow::bail!("--{other} is not known"),
            None => names.push(word),
        }
    }
    if let [name, files @ ..] = &names[..]
        && let Some(target) = target(name)
        && files.iter().any(|file| self::target(file).is_none())
    {
        for file in files {
            (target.read)(&fs::read(file).with_context(|| format!("read {file}"))?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = names.iter().map(|name| target(name).with_context(|| format!("no target {name}")));
    let mut wanted: Vec<Target> = wanted.collect::<Result<_, _>>()?;
    if wanted.is_empty() {
        wanted = TARGETS.to_vec();
    }
    let with_corpus = wanted.into_iter().map(|target| Ok((target, corpus(target.name)?)));
    let wanted: Vec<_> = with_corpus.collect::<anyhow::Result<_>>()?;
    say(&format!("fuzz: {} s, seed {}", plan.time.as_secs(), plan.seed))?;
    let outcomes = run(&wanted, plan);
    let mut code = ExitCode::SUCCESS;
    for ((target, _), outcome) in wanted.iter().zip(outcomes) {
        let Outcome { inputs, slowest, failed } = outcome;
        say(&format!(
            "{:12} {inputs:9} inputs, {:5} ms at most",
            target.name,
            slowest.as_millis()
        ))?;
        if let Some((why, input)) = failed {
            code = ExitCode::FAILURE;
            let kept = folder().join("artifacts").join(target.name);
            fs::create_dir_all(&kept)?;
            let file = kept.join(format!("{:016x}", plan.seed.wrapping_add(inputs)));
            fs::write(&file, input)?;
            say(&format!("{:12} FAILED: {why}\n{:12} {}", target.name, "", file.display()))?;
        }
    }
    Ok(code)
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Returns a seed that differs from run to run.
fn random() -> u64 {
    u64::from(clock::wall().subsec_nanosecond().unsigned_abs())
}
