//! Three replicas on lines that break in every way, at random, for a long time. There
//! is never a second leader, and once the lines are good again there is one.

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
/// How long the lines are bad.
const STORM: Duration = Duration::from_mins(10);
/// Within this time of good lines somebody leads: a Lease, its longest poll, a call.
const CALM: Duration = Duration::from_secs(30);
/// How often the watchman looks.
const LOOK: Duration = Duration::from_millis(20);

/// What became of a storm.
#[derive(Debug, Default)]
struct Outcome {
    /// When two led at once, for the first time.
    two_leaders: Option<Duration>,
    /// How often leadership moved.
    moves: usize,
    /// Whether somebody led in the calm after it.
    recovered: bool,
}

struct Storm {
    random: StdRng,
    lines: Vec<Line>,
    replicas: Vec<Replica>,
    guarded: bool,
    leader: Option<String>,
    outcome: Outcome,
}

impl Storm {
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

    /// Something happens to a replica or to its line.
    fn strike(&mut self) {
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

    /// Ends a replica without a word; another process takes its place.
    fn restart(&mut self, at: usize) {
        self.replicas[at] = Replica::over(&self.lines[at], terms(), self.guarded);
    }

    /// Time passes, and the watchman looks.
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
        while start.elapsed() < STORM && self.outcome.two_leaders.is_none() {
            self.strike();
            let pause = Duration::from_millis(self.random.random_range(50..4000));
            self.pass(pause, start).await;
        }
        for line in &self.lines {
            line.set(Fault::None);
        }
        self.pass(CALM, start).await;
        self.outcome.recovered = self.replicas.iter().any(Replica::leads);
        self.outcome
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_never_a_second_leader() {
    let mut moves = 0;
    for seed in 0..8 {
        let outcome = Storm::new(seed, true).run().await;
        assert_eq!(outcome.two_leaders, None, "seed {seed}");
        assert!(outcome.recovered, "seed {seed}: nobody leads in the calm");
        moves += outcome.moves;
    }
    assert!(moves > 8 * 10, "leadership hardly moved: {moves} times");
}

/// The storm is strong enough to show what the guard is for.
#[tokio::test(start_paused = true)]
async fn without_the_guard_there_soon_is_one() {
    for seed in 0..4 {
        let outcome = Storm::new(seed, false).run().await;
        assert!(outcome.two_leaders.is_some(), "seed {seed}: {outcome:?}");
    }
}
