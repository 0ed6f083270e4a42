//! Brings a load balancer up to date, by one change per call.

use std::time::Duration;

use ccm_base::clock;
use ccm_cloud::{CloudError, IpFamily, LoadBalancer, Loss, Note, Progress, Wanted};
use ccm_openstack_client::lbaas::{BalancerRow, Child, Provisioning};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Context, apply, create,
    current::{self, Seen},
    diff::{self, Goal},
    differences,
    find::{self, Found, Rows},
    floating,
    job::{Job, check_floating},
    local,
    memory::{Trial, Verified},
    names,
    ownership::adopted,
    place,
    pools::{self, why_none},
    read, repair,
    spec::{Tree, Unasked},
    steps::{Act, Step},
    view,
};

/// The wanted state that an existing load balancer is compared with.
struct Comparison {
    seen: Seen,
    steps: Vec<Step>,
    /// The time until new health monitors have their first results.
    tried_for: Option<Duration>,
    /// The record without the addresses, once no step is due.
    verified: Verified,
}

/// Ensures one load balancer of [`ensure`](ccm_cloud::LoadBalancers::ensure).
pub async fn ensure(
    cx: Context<'_>,
    wanted: &Wanted,
    rows: &Rows,
) -> Result<Progress<LoadBalancer>, CloudError> {
    let (job, found) = looked_up(cx, wanted, rows).await?;
    match found {
        Found::Gone(why) if !repair::may_replace(cx, wanted) => {
            Ok(Progress::Lost(Loss { why, is_gone: true }))
        }
        Found::Nothing | Found::Gone(_) => create::create(&job, had_one(cx, wanted)).await,
        Found::Adoptable(row) => match row.provisioning_status {
            Provisioning::Active => adopt(&job, &row).await,
            _ => Ok(view::in_progress(&row, Some("it is adopted after that"))),
        },
        Found::Own(row) => match row.provisioning_status {
            Provisioning::Active => {
                cx.failures.forget(&row.id);
                update(job, *row).await
            }
            Provisioning::Error | Provisioning::Deleted => repair::repair(&job, &row).await,
            Provisioning::PendingDelete => Ok(view::in_progress(&row, Some("a new one follows"))),
            Provisioning::Pending(_) => Ok(view::in_progress(&row, Some("changes may follow"))),
        },
    }
}

/// Previews one load balancer of [`preview`](ccm_cloud::LoadBalancers::preview).
pub async fn preview(
    cx: Context<'_>,
    wanted: &Wanted,
    rows: &Rows,
) -> Result<Vec<String>, CloudError> {
    let (job, found) = looked_up(cx, wanted, rows).await?;
    let (row, record) = match found {
        Found::Gone(_) if !repair::may_replace(cx, wanted) => return Ok(Vec::new()),
        Found::Nothing | Found::Gone(_) => {
            let design = create::design(&job, &[], had_one(cx, wanted)).await?;
            return Ok(lines(design.steps(&wanted.front_end.owner)));
        }
        Found::Adoptable(row) => {
            let line = adoption_line(&row, wanted);
            let tags = adopted(&row.tags, &wanted.front_end.owner);
            (BalancerRow { tags, ..*row }, Some(line))
        }
        Found::Own(row) if row.provisioning_status == Provisioning::Error => {
            return repair::preview(&job, &row).await.map(lines);
        }
        Found::Own(row) => (*row, None),
    };
    let compared = compare(&job, row).await?;
    Ok(record.into_iter().chain(lines(compared.steps)).collect())
}

fn lines(steps: Vec<Step>) -> Vec<String> {
    steps.into_iter().map(|step| step.line).collect()
}

async fn looked_up<'a>(
    cx: Context<'a>,
    wanted: &'a Wanted,
    rows: &Rows,
) -> Result<(Job<'a>, Found), CloudError> {
    let features = cx.features(&cx.config.load_balancer.provider, cx.call).await?;
    let mut job = Job::read(cx, wanted, features)?;
    place::check_member_subnet(&job).await?;
    let found = find::find(cx, wanted, rows).await?;
    // A failed load balancer is replaced, with the driver for new load balancers.
    if let Found::Own(row) | Found::Adoptable(row) = &found
        && !matches!(row.provisioning_status, Provisioning::Error | Provisioning::Deleted)
    {
        job.features = job.features.with(row.provider.as_deref());
    }
    Ok((job, found))
}

/// Returns true if an owner had a load balancer before, whose floating IP may be left.
fn had_one(cx: Context<'_>, wanted: &Wanted) -> bool {
    wanted.known.is_some() || cx.memory.before(&wanted.front_end.owner.uid).is_some()
}

/// Records the owner, and changes nothing else.
async fn adopt(job: &Job<'_>, row: &BalancerRow) -> Result<Progress<LoadBalancer>, CloudError> {
    let cx = job.cx;
    let tags = adopted(&row.tags, &job.wanted.front_end.owner);
    cx.octavia.update(&row.id, json!({ "tags": tags }), cx.call).await?;
    Ok(Progress::InProgress(view::after_change(row, adoption_line(row, job.wanted))))
}

/// Makes the first change, if there is one.
async fn update(mut job: Job<'_>, row: BalancerRow) -> Result<Progress<LoadBalancer>, CloudError> {
    let cx = job.cx;
    job.adds_monitors = cx.pace.has_begun(&row.id);
    let mut compared = compare(&job, row).await?;
    if compared.verified.waits_for_monitors && cx.pace.begin(&compared.seen.row.id) {
        job.adds_monitors = true;
        compared = compare(&job, compared.seen.row).await?;
    }
    while let Some(step) = compared.steps.first().cloned() {
        let line = step.line.clone();
        // Neutron's part is done at once and does not need to wait for Octavia.
        let is_floating = matches!(step.act, Act::Floating(_));
        let is_unasked = job.settings.checks.is_none() && creates_monitor(&step);
        match apply::make(&job, &compared.seen.row, step).await {
            Err(error) if is_unasked && local::is_refusal(&error) => {
                let (id, why) = (&compared.seen.row.id, error.to_string());
                let note = local::refused(&why);
                if !compared.verified.notes.contains(&note) {
                    compared.verified.notes.push(note);
                }
                let refused = Some((job.wanted.front_end.digest, why));
                cx.memory.change(id, |known| known.unmonitored = refused);
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
            compared.seen.floating = read::floating_of(cx, &compared.seen.row).await?;
        }
    }
    if let Some(left) = compared.tried_for {
        return Ok(Progress::InProgress(local::trying(&compared.seen.row, left)));
    }
    let Comparison { seen, verified, .. } = compared;
    let pools = pools::shown(
        &verified.ports,
        |port| pools::count(&seen, port),
        verified.why_empty.as_deref(),
    );
    let verified = view::with_addresses(&job, &seen.row, &seen.floating, verified);
    cx.memory.change(&seen.row.id, |known| known.verify(verified));
    let mut balancer = view::view(cx, &seen.row, &job.wanted.front_end.owner.cluster);
    balancer.members = Some(current::nodes(&seen.members));
    balancer.pools = pools;
    Ok(Progress::Done(balancer))
}

/// Compares a load balancer with what is wanted of it.
async fn compare(job: &Job<'_>, row: BalancerRow) -> Result<Comparison, CloudError> {
    let cx = job.cx;
    let front_end = &job.wanted.front_end;
    let seen = read::read(job, row).await?;
    let mut families = current::families(&seen.row);
    if families.is_empty() {
        families = front_end.families.iter().take(1).copied().collect();
    }
    let family = families.first().copied().unwrap_or(IpFamily::V4);
    let name = names::of_existing(&seen.row.name, &seen.row.tags, &front_end.owner);
    let unasked = local::decide(&seen, job);
    let tree = Tree::new(name, front_end, &job.settings, job.features, &families, unasked)?;
    let mut notes = differences::differences(&seen, job, &families);
    notes.extend(of_monitors(job, &seen, unasked));
    notes.extend(tree.notes.iter().chain(&job.settings.notes).cloned());
    let floating = floating_steps(job, &seen, family, &mut notes).await?;
    let given = job.settings.networks.members(&cx.config).map(|given| given.value);
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
        touched: cx.memory.read(&seen.row.id, |known| Some(known.touched)) == Some(true),
    };
    let mut steps = diff::diff(&seen, &goal, floating)?;
    let tried_for = match tried(job, &seen) {
        local::TrialResult::Nothing => None,
        local::TrialResult::Later(left) => Some(left),
        local::TrialResult::AllFail(listener) => {
            steps.insert(0, local::taking_back(&seen, job, &listener));
            None
        }
    };
    let verified = Verified {
        notes,
        parts: seen.parts(),
        waits_for_monitors: local::lacks_monitors(&seen, job)
            && job.settings.local_checks.is_some_and(|local| local.for_all),
        ports: pools::of_seen(&seen, &tree),
        why_empty: why_none(&job.wanted.members, &job.settings.selector, family),
        ..Verified::default()
    };
    Ok(Comparison { seen, steps, tried_for, verified })
}

/// Returns the changes of the floating IP.
async fn floating_steps(
    job: &Job<'_>,
    seen: &Seen,
    family: IpFamily,
    notes: &mut Vec<Note>,
) -> Result<Vec<Step>, CloudError> {
    let (settings, attached, front_end) = (&job.settings, &seen.floating, &job.wanted.front_end);
    let wish = place::wish(job, family, attached, notes).await?;
    let is_new = job.cx.memory.verified(&seen.row.id).is_none();
    let search = floating::search(&wish, attached, is_new || attached.is_empty());
    let elsewhere = read::elsewhere(job, search).await?;
    let outer = place::floating_subnet(job, &wish, attached).await?;
    notes.extend(differences::of_floating(&wish, settings, attached, &elsewhere, outer.as_ref()));
    let mut steps = floating::plan(&wish, &front_end.owner, attached, &elsewhere)?;
    let is_changing = front_end.digest.differs_from(names::digest(&seen.row.tags));
    steps.extend(floating::asked_for(&wish, &front_end.owner, attached, is_changing, &steps));
    // An internal load balancer must not become public by a misspelling.
    if settings.misspelt_internal.is_some() && attached.is_empty() {
        steps.retain(|step| !step.makes_public());
    }
    if steps.iter().any(Step::creates_floating) {
        check_floating(settings)?;
    }
    Ok(steps)
}

/// Returns the remarks on the health monitors of local traffic.
fn of_monitors(job: &Job<'_>, seen: &Seen, unasked: Unasked) -> Vec<Note> {
    let front_end = &job.wanted.front_end;
    let mut notes = local::remarks(Some(seen), front_end, &job.settings, job.features, unasked);
    let refused = job.cx.memory.read(&seen.row.id, |known| known.unmonitored.clone());
    if let Some((digest, why)) = refused
        && digest == front_end.digest
        && local::is_unchecked(seen, job)
    {
        notes.push(local::refused(&why));
    }
    notes
}

/// Returns the results of new health monitors.
fn tried(job: &Job<'_>, seen: &Seen) -> local::TrialResult {
    let tried = local::on_trial(seen, job, clock::wall());
    if tried.is_empty() {
        return local::TrialResult::Nothing;
    }
    job.cx.memory.change(&seen.row.id, |known| {
        let Trial::Since(since) = *known.tried.get_or_insert_with(|| Trial::Since(Instant::now()))
        else {
            return local::TrialResult::Nothing;
        };
        let found = local::found(seen, &tried, since.elapsed());
        if found == local::TrialResult::Nothing {
            known.tried = Some(Trial::Passed);
        }
        found
    })
}

fn creates_monitor(step: &Step) -> bool {
    matches!(step.act, Act::Create(Child::Monitor, _))
}

fn adoption_line(row: &BalancerRow, wanted: &Wanted) -> String {
    let owner = &wanted.front_end.owner;
    format!("record Service {owner} of this cluster as the owner of load balancer {}", row.id)
}
