//! Runs targets side by side for a while, without a fuzzer.

use std::{
    any::Any,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use ccm_base::Instant;
use parking_lot::Mutex;

use crate::{Target, mutate};

/// One input may not take more of a processor.
pub const LONGEST: Duration = Duration::from_secs(5);
/// Nor may it take longer, however busy the machine is.
const LONGEST_BY_CLOCK: Duration = Duration::from_mins(2);

/// The targets to run, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// For how long.
    pub time: Duration,
    /// The first input's seed; the seeds of the others follow.
    pub seed: u64,
    /// The most inputs.
    pub inputs: u64,
}

/// How it went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The inputs so far.
    pub inputs: u64,
    /// How long the slowest one took of a processor.
    pub slowest: Duration,
    /// The failure, with the input that shows it.
    pub failed: Option<(String, Vec<u8>)>,
}

/// Returns the folder of corpora and of inputs that failed.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns the kept inputs of a target, by name. All must exist.
///
/// # Errors
///
/// A folder that cannot be read, or has no input.
pub fn corpus(name: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let folder = folder().join("corpus").join(name);
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    let corpus = paths.iter().map(fs::read).collect::<std::io::Result<Vec<_>>>()?;
    anyhow::ensure!(!corpus.is_empty(), "{} is empty", folder.display());
    Ok(corpus)
}

/// The input that a thread runs now.
#[derive(Default)]
struct Now {
    outcome: Outcome,
    /// The input in work.
    input: Option<Work>,
}

/// An input in work.
struct Work {
    input: Vec<u8>,
    since: Instant,
    /// The thread, and how long it had run.
    thread: i32,
    before: Duration,
}

impl Work {
    fn begin(input: Vec<u8>) -> Self {
        let thread = rustix::thread::gettid().as_raw_pid();
        Self { input, since: Instant::now(), thread, before: ran(thread) }
    }

    fn ran(&self) -> Duration {
        ran(self.thread).saturating_sub(self.before)
    }

    fn hangs(&self) -> bool {
        self.ran() > LONGEST || self.since.elapsed() > LONGEST_BY_CLOCK
    }
}

/// Returns how long a thread has run on a processor, as Linux counts.
fn ran(thread: i32) -> Duration {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let first = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
    Duration::from_nanos(first.unwrap_or_default())
}

/// Runs the targets. Returns the outcome of each, in their order; at the first input that does not end
/// all others end.
pub fn run(targets: &[(Target, Vec<Vec<u8>>)], plan: Plan) -> Vec<Outcome> {
    let (done, waiting) = mpsc::channel();
    let all: Vec<Arc<Mutex<Now>>> = targets.iter().map(|_| Arc::default()).collect();
    for ((target, corpus), now) in targets.iter().zip(&all) {
        let (target, corpus, now, done) =
            (*target, corpus.clone(), Arc::clone(now), mpsc::Sender::clone(&done));
        // A thread that overflows its stack ends the process, which says its name.
        let thread = thread::Builder::new().name(target.name.to_owned());
        let started = thread.spawn(move || {
            work(target, &corpus, plan, &now);
            // The other side waits until all have ended, or has ended itself.
            done.send(()).ok();
        });
        if let Err(error) = started {
            return vec![Outcome {
                failed: Some((error.to_string(), Vec::new())),
                ..Outcome::default()
            }];
        }
    }
    let mut left = targets.len();
    while left > 0 {
        if waiting.recv_timeout(Duration::from_millis(200)).is_ok() {
            left -= 1;
        }
        let hangs = |now: &Arc<Mutex<Now>>| now.lock().input.as_ref().is_some_and(Work::hangs);
        if let Some(now) = all.iter().find(|now| hangs(now)) {
            let mut now = now.lock();
            let input = now.input.take().map(|work| work.input).unwrap_or_default();
            now.outcome.failed = Some((format!("no end within {} s", LONGEST.as_secs()), input));
            break;
        }
    }
    all.iter().map(|now| now.lock().outcome.clone()).collect()
}

fn work(target: Target, corpus: &[Vec<u8>], plan: Plan, now: &Mutex<Now>) {
    let end = Instant::now() + plan.time;
    for number in 0..plan.inputs {
        let input = match usize::try_from(number).ok().and_then(|number| corpus.get(number)) {
            Some(kept) => kept.clone(),
            None => mutate::mutated(target.form, corpus, plan.seed.wrapping_add(number)),
        };
        now.lock().input = Some(Work::begin(input.clone()));
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.read)(&input)));
        let mut now = now.lock();
        let took = now.input.take().map(|work| work.ran()).unwrap_or_default();
        now.outcome.inputs += 1;
        now.outcome.slowest = now.outcome.slowest.max(took);
        if let Err(panic) = outcome {
            let seed = plan.seed.wrapping_add(number);
            now.outcome.failed =
                Some((format!("panic with seed {seed}: {}", words(&*panic)), input));
        }
        if now.outcome.failed.is_some() || Instant::now() >= end {
            return;
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no words").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, TARGETS};

    fn plan(inputs: u64) -> Plan {
        Plan { time: Duration::from_mins(1), seed: 1, inputs }
    }

    #[test]
    fn no_kept_input_fails() {
        for target in TARGETS {
            let corpus = corpus(target.name).unwrap();
            let inputs = corpus.len() as u64;
            let outcome = run(&[(target, corpus)], plan(inputs)).remove(0);
            assert_eq!(outcome.inputs, inputs, "{}: {:?}", target.name, outcome.failed);
        }
    }

    #[test]
    fn a_panic_is_told_with_its_input_and_seed() {
        let read = |data: &[u8]| assert!(data.is_empty() || data == b"x", "what is this?");
        let target = Target { name: "test", form: Form::Text, read };
        let outcome = run(&[(target, vec![b"x".to_vec()])], plan(10_000)).remove(0);
        let (why, input) = outcome.failed.unwrap();
        assert!(why.contains("what is this?") && outcome.inputs < 10_000, "{why}");
        let seed = outcome.inputs;
        assert!(why.contains(&format!("seed {seed}:")), "{why}");
        assert_eq!(input, mutate::mutated(target.form, &[b"x".to_vec()], seed));
    }
}
