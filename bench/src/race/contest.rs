//! Lets two candidates compete for one Lease, round after round.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_kube::{
    client::{ClientConfig, Clients, Unlimited},
    metrics::RestMetrics,
};
use ccm_runtime::settings::ElectionSettings;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::time::{Instant, sleep};

use super::{
    candidate::{Candidate, Manners, Recipe},
    fault::{Fault, Plan, wrong_clocks},
    line::{Line, LineMode, SLOWEST},
    referee::Referee,
};

/// Once everything works, a candidate leads within this time: the length of the Lease, and calls
/// that still wait.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the candidates are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A place that always has a candidate: when one ends the next one starts, as in a Deployment.
struct Seat {
    name: char,
    lives: usize,
    recipe: Recipe,
    candidate: Option<Candidate>,
}

impl Seat {
    async fn restart(&mut self) -> Result<()> {
        self.candidate = None;
        self.lives += 1;
        self.recipe.name = format!("{}{}", self.name, self.lives);
        self.candidate = Some(Candidate::start(self.recipe.clone()).await?);
        Ok(())
    }

    fn leads(&self) -> bool {
        self.candidate.as_ref().is_some_and(Candidate::leads)
    }

    fn is_empty(&self) -> bool {
        self.candidate.as_ref().is_none_or(Candidate::has_ended)
    }
}

/// A race for one Lease.
pub struct Contest {
    referee: Arc<Referee>,
    seats: [Seat; 2],
    random: StdRng,
}

impl Contest {
    /// Starts both candidates.
    pub async fn start(
        kubeconfig: &Path,
        terms: &ElectionSettings,
        manners: Manners,
        seed: u64,
    ) -> Result<Self> {
        let mut random = StdRng::seed_from_u64(seed);
        let referee = Arc::new(Referee::new(&terms.lease));
        let mut seat = async |name: char| {
            let recipe = Recipe {
                name: name.to_string(),
                terms: terms.clone(),
                manners,
                clients: clients(kubeconfig).await?,
                line: Line::new(random.random()),
                referee: referee.clone(),
            };
            anyhow::Ok(Seat { name, lives: 0, recipe, candidate: None })
        };
        let seats = [seat('a').await?, seat('b').await?];
        let clocks = wrong_clocks(&mut random);
        let mut contest = Self { referee, seats, random };
        contest.set_clocks(clocks);
        contest.fill().await?;
        Ok(contest)
    }

    /// Runs this number of rounds, or until two have led at once.
    pub async fn run(mut self, rounds: usize) -> Result<Arc<Referee>> {
        for round in 0..rounds {
            let plan = Plan::draw(&mut self.random);
            self.round(plan)
                .await
                .with_context(|| format!("lease {}, round {round}", self.referee.lease()))?;
            if self.referee.overlaps() > 0 {
                return Ok(self.referee);
            }
        }
        // The last fault is also followed by a takeover.
        self.leader().await?;
        sleep(LOOK * 5).await;
        Ok(self.referee)
    }

    async fn round(&mut self, plan: Plan) -> Result<()> {
        let leader = self.leader().await?;
        self.pass(plan.settle).await?;
        self.referee.round(plan.fault);
        self.strike(leader, plan).await?;
        self.pass(plan.length).await?;
        self.mode(LineMode::Normal);
        if plan.fault == Fault::Slow {
            // Requests that are still under way belong to this round and not to the next one.
            self.pass(2 * SLOWEST).await?;
        }
        Ok(())
    }

    async fn strike(&mut self, leader: usize, plan: Plan) -> Result<()> {
        let Some(seat) = self.seats.get_mut(leader) else { return Ok(()) };
        let line = &seat.recipe.line;
        match plan.fault {
            Fault::Kill => seat.restart().await?,
            Fault::KillBoth => {
                for seat in &mut self.seats {
                    seat.candidate = None;
                }
                self.fill().await?;
            }
            Fault::Release => seat.candidate.iter().for_each(Candidate::release),
            Fault::Freeze => seat.candidate.iter().for_each(|it| it.freeze(plan.length)),
            Fault::Slow => self.mode(LineMode::Slow),
            Fault::Silence => line.set(LineMode::Silence),
            Fault::Cut => line.set(LineMode::Cut),
            Fault::Clocks => self.set_clocks(plan.ahead),
        }
        Ok(())
    }

    fn mode(&self, mode: LineMode) {
        for seat in &self.seats {
            seat.recipe.line.set(mode);
        }
    }

    fn set_clocks(&self, ahead: [i64; 2]) {
        for (seat, ahead) in self.seats.iter().zip(ahead) {
            seat.recipe.line.set_clock_ahead(ahead);
        }
    }

    /// Starts candidates on empty seats.
    async fn fill(&mut self) -> Result<()> {
        for seat in &mut self.seats {
            if seat.is_empty() {
                seat.restart().await?;
            }
        }
        Ok(())
    }

    /// Lets time pass.
    async fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.fill().await?;
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until one of them leads.
    async fn leader(&mut self) -> Result<usize> {
        let start = Instant::now();
        loop {
            self.fill().await?;
            if let Some(leader) = self.seats.iter().position(Seat::leads) {
                return Ok(leader);
            }
            ensure!(start.elapsed() < PATIENCE, "no leader after {PATIENCE:?}");
            sleep(LOOK).await;
        }
    }
}

/// Returns the product's clients, with connections of their own.
async fn clients(kubeconfig: &Path) -> Result<Clients> {
    let config = ClientConfig {
        kubeconfig: Some(kubeconfig.to_owned()),
        master: None,
        user_agent: "race".to_owned(),
        request_timeout: Duration::from_secs(15),
        limiter: Arc::new(Unlimited),
        credentials_over_http: false,
        metrics: Arc::new(RestMetrics::default()),
    };
    Ok(Clients::connect(config).await?)
}
