//! Three replicas with random network faults for a long time. There is never a second
//! leader, and after the faults there is one.

use std::time::Duration;

use http::StatusCode;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use tokio::time::{Instant, sleep};

use crate::{
    lease_api::LeaseApi,
    line::{Fault, Line},
    replicas::{Replica, terms},
};

const REPLICAS: usize = 3;
/// How long faults are injected.
const FAULTS_FOR: Duration = Duration::from_mins(10);
/// A replica must lead this long after the last fault: a Lease, the longest poll, a call.
const RECOVERY: Duration = Duration::from_secs(30);
/// The interval of the check for leaders.
const LOOK: Duration = Duration::from_millis(20);

/// The result of a run.
#[derive(Debug, Default)]
struct Outcome {
    /// When two replicas led at the same time, for the first time.
    two_leaders: Option<Duration>,
    /// How often leadership moved.
    moves: usize,
    /// True if a replica led after the faults.
    recovered: bool,
}

struct FaultRun {
    random: StdRng,
    lines: Vec<Line>,
    replicas: Vec<Replica>,
    guarded: bool,
    leader: Option<String>,
    outcome: Outcome,
}

impl FaultRun {
    fn new(seed: u64, guarded: bool) -> Self {
        let api = LeaseApi::default();
        let lines: Vec<_> = (0..REPLICAS).map(|_| Line::new(&api)).collect();
        let replicas = lines.iter().map(|line| Replica::over(line, terms(), guarded)).collect();
        let random = StdRng::seed_from_u64(seed);
        Self { random, lines, replicas, guarded, leader: None, outcome: Outcome::default() }
    }

    fn fault(&mut self) -> Fault {
        let mut up_to =
            |seconds: u64| Duration::from_millis(self.random.random_range(0..seconds * 1000));
        let slow = Fault::Slow(up_to(3), up_to(3));
        let stalled = Fault::Slow(up_to(60), up_to(2));
        let status = *[StatusCode::INTERNAL_SERVER_ERROR, StatusCode::FORBIDDEN]
            .choose(&mut self.random)
            .unwrap();
        let faults = [
            Fault::None,
            Fault::Refused,
            Fault::Silent,
            Fault::Deaf,
            Fault::NoWatch,
            slow,
            stalled,
            Fault::Status(status),
        ];
        *faults.choose(&mut self.random).unwrap()
    }

    /// Injects a fault into a replica or its connection.
    fn inject(&mut self) {
        let at = self.random.random_range(0..REPLICAS);
        match self.random.random_range(0..12) {
            0 => self.restart(at),
            1 => self.replicas[at].release(),
            2 | 3 => self.lines[at].set_clock_ahead(self.random.random_range(-100..100)),
            4..=7 => self.lines[at].set(Fault::None),
            _ => {
                let fault = self.fault();
                self.lines[at].set(fault);
            }
        }
    }

    /// Kills a replica and replaces it.
    fn restart(&mut self, at: usize) {
        self.replicas[at] = Replica::over(&self.lines[at], terms(), self.guarded);
    }

    /// Lets time pass and checks for leaders.
    async fn pass(&mut self, time: Duration, start: Instant) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(LOOK).await;
            for at in 0..REPLICAS {
                if self.replicas[at].ended().is_some() {
                    self.restart(at);
                }
            }
            let leaders: Vec<_> = self.replicas.iter().filter(|replica| replica.leads()).collect();
            if leaders.len() > 1 {
                self.outcome.two_leaders.get_or_insert(start.elapsed());
            }
            if let Some(leader) = leaders.first().map(|leader| leader.identity.clone()) {
                self.outcome.moves += usize::from(self.leader.as_ref() != Some(&leader));
                self.leader = Some(leader);
            }
        }
    }

    async fn run(mut self) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < FAULTS_FOR && self.outcome.two_leaders.is_none() {
            self.inject();
            let pause = Duration::from_millis(self.random.random_range(50..4000));
            self.pass(pause, start).await;
        }
        for line in &self.lines {
            line.set(Fault::None);
        }
        self.pass(RECOVERY, start).await;
        self.outcome.recovered = self.replicas.iter().any(Replica::leads);
        self.outcome
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_never_a_second_leader() {
    let mut moves = 0;
    for seed in 0..8 {
        let outcome = FaultRun::new(seed, true).run().await;
        assert_eq!(outcome.two_leaders, None, "seed {seed}");
        assert!(outcome.recovered, "seed {seed}: no leader after the faults");
        moves += outcome.moves;
    }
    assert!(moves > 8 * 10, "leadership hardly moved: {moves} times");
}

/// The faults are strong enough to show the effect of the guard.
#[tokio::test(start_paused = true)]
async fn without_the_guard_there_are_two_leaders() {
    for seed in 0..4 {
        let outcome = FaultRun::new(seed, false).run().await;
        assert!(outcome.two_leaders.is_some(), "seed {seed}: {outcome:?}");
    }
}
