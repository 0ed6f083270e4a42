//! Brings a load balancer up to date, by one change per call.

use std::time::Duration;

use ccm_base::clock;
use ccm_cloud::{Call, CloudError, IpFamily, LoadBalancer, Loss, Note, Progress, Wanted};
use ccm_openstack_client::lbaas::{BalancerRow, Child, Provisioning};
use serde_json::json;

use super::{
    OctaviaBalancers,
    current::{self, Seen},
    diff::{self, Goal},
    differences,
    find::{Found, Rows},
    floating,
    job::{Job, check_floating},
    local,
    memory::Verified,
    names,
    ownership::adopted,
    pools::{self, PortPool, why_none},
    spec::{Tree, Unasked},
    steps::{Act, FloatingAct, Step},
    view,
};

/// The wanted state that an existing load balancer is compared with.
struct Comparison {
    seen: Seen,
    notes: Vec<Note>,
    steps: Vec<Step>,
    /// True if the load balancer waits for its turn to get health monitors.
    waits_for_monitors: bool,
    /// The time until new health monitors have their first results.
    tried_for: Option<Duration>,
    ports: Vec<PortPool>,
    why_empty: Option<String>,
}

impl OctaviaBalancers {
    /// One load balancer of [`ensure`](ccm_cloud::LoadBalancers::ensure).
    pub async fn ensure_one(
        &self,
        wanted: &Wanted,
        rows: &Rows,
        call: Call,
    ) -> Result<Progress<LoadBalancer>, CloudError> {
        let (job, found) = self.looked_up(wanted, rows, call).await?;
        match found {
            Found::Gone(why) if !self.may_replace(wanted) => {
                Ok(Progress::Lost(Loss { why, is_gone: true }))
            }
            Found::Nothing | Found::Gone(_) => self.create(job, self.had_one(wanted), call).await,
            Found::Adoptable(row) => match row.provisioning_status {
                Provisioning::Active => self.adopt(&row, &job, call).await,
                _ => Ok(in_progress(&row, "it is adopted after that")),
            },
            Found::Own(row) => match row.provisioning_status {
                Provisioning::Active => {
                    self.failures.forget(&row.id);
                    self.update(*row, job, call).await
                }
                Provisioning::Error | Provisioning::Deleted => self.repair(&row, &job, call).await,
                Provisioning::PendingDelete => Ok(in_progress(&row, "a new one follows")),
                Provisioning::Pending(_) => Ok(in_progress(&row, "changes may follow")),
            },
        }
    }

    /// One load balancer of [`preview`](ccm_cloud::LoadBalancers::preview).
    pub async fn preview_one(
        &self,
        wanted: &Wanted,
        rows: &Rows,
        call: Call,
    ) -> Result<Vec<String>, CloudError> {
        let (job, found) = self.looked_up(wanted, rows, call).await?;
        let (row, record) = match found {
            Found::Gone(_) if !self.may_replace(wanted) => return Ok(Vec::new()),
            Found::Nothing | Found::Gone(_) => {
                return self.preview_creation(&job, &[], self.had_one(wanted), call).await;
            }
            Found::Adoptable(row) => {
                let line = adoption_line(&row, wanted);
                let tags = adopted(&row.tags, &wanted.front_end.owner);
                (BalancerRow { tags, ..*row }, Some(line))
            }
            Found::Own(row) if row.provisioning_status == Provisioning::Error => {
                return self.preview_repair(&row, &job, call).await;
            }
            Found::Own(row) => (*row, None),
        };
        let compared = self.compare(row, &job, call).await?;
        let lines = compared.steps.into_iter().map(|step| step.line);
        Ok(record.into_iter().chain(lines).collect())
    }

    async fn looked_up<'a>(
        &self,
        wanted: &'a Wanted,
        rows: &Rows,
        call: Call,
    ) -> Result<(Job<'a>, Found), CloudError> {
        let features = self.features(&self.options.balancer.provider, call).await?;
        let mut job = Job::of(wanted, &self.options, features)?;
        self.check_member_subnet(&job, call).await?;
        let found = self.find(wanted, rows, call).await?;
        // One that has failed is replaced, by the driver of new ones.
        if let Found::Own(row) | Found::Adoptable(row) = &found
            && !matches!(row.provisioning_status, Provisioning::Error | Provisioning::Deleted)
        {
            job.features = job.features.with(row.provider.as_deref());
        }
        Ok((job, found))
    }

    /// Returns true if an owner had a load balancer before, whose floating IP may be left.
    fn had_one(&self, wanted: &Wanted) -> bool {
        wanted.known.is_some() || self.memory.had_one(&wanted.front_end.owner.uid)
    }

    /// Records the owner, and changes nothing else.
    async fn adopt(
        &self,
        row: &BalancerRow,
        job: &Job<'_>,
        call: Call,
    ) -> Result<Progress<LoadBalancer>, CloudError> {
        let tags = adopted(&row.tags, &job.wanted.front_end.owner);
        self.octavia.update(&row.id, json!({ "tags": tags }), call).await?;
        Ok(Progress::InProgress(view::after_change(row, adoption_line(row, job.wanted))))
    }

    /// Makes the first change, if there is one.
    async fn update(
        &self,
        row: BalancerRow,
        mut job: Job<'_>,
        call: Call,
    ) -> Result<Progress<LoadBalancer>, CloudError> {
        job.adds_monitors = self.pace.has_begun(&row.id);
        let mut compared = self.compare(row, &job, call).await?;
        if compared.waits_for_monitors && self.pace.begin(&compared.seen.row.id) {
            job.adds_monitors = true;
            compared = self.compare(compared.seen.row, &job, call).await?;
        }
        while let Some(step) = compared.steps.first().cloned() {
            let line = step.line.clone();
            // Neutron's part is done at once, and needs no turn of Octavia's.
            let is_floating = matches!(step.act, Act::Floating(_));
            let is_unasked = job.settings.checks.is_none() && creates_monitor(&step);
            match self.make(&compared.seen.row, &job, step, call).await {
                Err(error) if is_unasked && local::is_refusal(&error) => {
                    let (id, why) = (&compared.seen.row.id, error.to_string());
                    let note = local::refused(&why);
                    if !compared.notes.contains(&note) {
                        compared.notes.push(note);
                    }
                    self.memory.keep_unmonitored(id, job.wanted.front_end.digest, why);
                    compared.steps.retain(|step| !creates_monitor(step));
                    continue;
                }
                made => made?,
            }
            if !is_floating {
                return Ok(Progress::InProgress(view::after_change(&compared.seen.row, line)));
            }
            compared.steps.remove(0);
            if !compared.steps.iter().any(|step| matches!(step.act, Act::Floating(_))) {
                compared.seen.floating = self.floating_of(&compared.seen.row, call).await?;
            }
        }
        if let Some(left) = compared.tried_for {
            return Ok(Progress::InProgress(local::trying(&compared.seen.row, left)));
        }
        let Comparison { seen, notes, waits_for_monitors, ports, why_empty, .. } = compared;
        let verified = self.verified(&seen.row, &seen.floating, &job, seen.parts(), notes);
        let pools = pools::shown(&ports, seen.filled(), why_empty.as_deref());
        let verified = Verified { waits_for_monitors, ports, why_empty, ..verified };
        self.memory.verify(&seen.row.id, verified);
        let mut balancer = self.shown(&seen.row, &job.wanted.front_end.owner.cluster);
        balancer.members = Some(current::nodes(&seen.members));
        balancer.pools = pools;
        Ok(Progress::Done(balancer))
    }

    /// Compares a load balancer with what is wanted of it.
    async fn compare(
        &self,
        row: BalancerRow,
        job: &Job<'_>,
        call: Call,
    ) -> Result<Comparison, CloudError> {
        let front_end = &job.wanted.front_end;
        let seen = self.read(row, job, call).await?;
        let mut families = current::families(&seen.row);
        if families.is_empty() {
            families = front_end.families.iter().take(1).copied().collect();
        }
        let family = families.first().copied().unwrap_or(IpFamily::V4);
        let name = names::of_existing(&seen.row.name, &seen.row.tags, &front_end.owner);
        let unasked = local::decide(&seen, job);
        let tree = Tree::of(name, front_end, &job.settings, job.features, &families, unasked)?;
        let provider = &self.options.balancer.provider;
        let mut notes = differences::differences(&seen, job, provider, &families);
        notes.extend(self.of_monitors(&seen, job, unasked));
        notes.extend(tree.notes.iter().chain(&job.settings.notes).cloned());
        let wish = self.wish(job, family, &seen.floating, &mut notes, call).await?;
        let is_new = self.memory.verified(&seen.row.id).is_none();
        let look = floating::look(&wish, &seen.floating, is_new || seen.floating.is_empty());
        let elsewhere = self.elsewhere(look, job, call).await?;
        let outer = self.floating_subnet(&wish, &job.settings, &seen.floating, call).await?;
        let (attached, outer) = (&seen.floating, outer.as_ref());
        notes.extend(differences::of_floating(&wish, &job.settings, attached, &elsewhere, outer));
        let port = seen.row.vip_port_id.as_deref();
        let owner = &front_end.owner;
        let mut floating = floating::plan(&wish, owner, port, &seen.floating, &elsewhere)?;
        let is_changing = front_end.digest.differs_from(names::digest(&seen.row.tags));
        floating.extend(floating::asked_for(&wish, owner, attached, is_changing, &floating));
        let creates = |step: &Step| matches!(&step.act, Act::Floating(FloatingAct::Create(_)));
        if floating.iter().any(creates) {
            check_floating(&job.settings)?;
        }
        let given = job.settings.networks.members(&self.options).map(|given| given.value);
        let subnet = given.or_else(|| seen.row.vip_subnet_id.clone());
        let goal = Goal {
            owner: &front_end.owner,
            digest: front_end.digest,
            tree: &tree,
            tags: &job.settings.tags.balancer,
            members: &job.wanted.members,
            family,
            selector: &job.settings.selector,
            subnet: subnet.as_deref(),
            touched: self.memory.is_touched(&seen.row.id),
        };
        let mut steps = diff::diff(&seen, &goal, floating)?;
        let waits_for_monitors = local::lacks_monitors(&seen, job)
            && job.settings.local_checks.is_some_and(|local| local.for_all);
        let tried_for = match self.tried(&seen, job) {
            local::Found::Nothing => None,
            local::Found::Later(left) => Some(left),
            local::Found::AllFail(listener) => {
                steps.insert(0, local::taking_back(&seen, job, &listener));
                None
            }
        };
        let ports = pools::of_seen(&seen, &tree);
        let why_empty = why_none(&job.wanted.members, &job.settings.selector, family);
        Ok(Comparison { seen, notes, steps, waits_for_monitors, tried_for, ports, why_empty })
    }

    /// Returns the remarks on the health monitors of local traffic.
    fn of_monitors(&self, seen: &Seen, job: &Job<'_>, unasked: Unasked) -> Vec<Note> {
        let front_end = &job.wanted.front_end;
        let mut notes = local::remarks(Some(seen), front_end, &job.settings, job.features, unasked);
        let refused = self.memory.unmonitored(&seen.row.id, front_end.digest);
        let refused = refused.filter(|_| local::is_unchecked(seen, job));
        notes.extend(refused.map(|why| local::refused(&why)));
        notes
    }

    /// Returns the results of new health monitors.
    fn tried(&self, seen: &Seen, job: &Job<'_>) -> local::Found {
        let tried = local::on_trial(seen, job, clock::wall());
        if tried.is_empty() {
            return local::Found::Nothing;
        }
        let Some(elapsed) = self.memory.tried(&seen.row.id) else { return local::Found::Nothing };
        let found = local::found(seen, &tried, elapsed);
        if found == local::Found::Nothing {
            self.memory.pass(&seen.row.id);
        }
        found
    }
}

fn creates_monitor(step: &Step) -> bool {
    matches!(step.act, Act::Create(Child::Monitor, _))
}

fn adoption_line(row: &BalancerRow, wanted: &Wanted) -> String {
    let owner = &wanted.front_end.owner;
    format!("record Service {owner} of this cluster as the owner of load balancer {}", row.id)
}

fn in_progress(row: &BalancerRow, what: &str) -> Progress<LoadBalancer> {
    Progress::InProgress(view::waiting(row, Some(what), clock::wall()))
}
