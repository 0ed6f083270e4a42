//! The loop: who is to be looked at, one lookup of them all, the court, and what it says
//! carried out.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_cloud::{Call, Claim, Detail, LookupResult, PowerState};
use ccm_controller::instances;
use ccm_objects::{Node, Shared as Name};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::{Controller, Nodes},
    court::{Agenda, At, Court, Deletion, Hearing, LookedUp, Ruling, Subject, Testimony, Verdict},
    execute::Stopped,
    metrics::States,
    observe,
    settings::LifecycleSettings,
    shutdown::{self, Step},
    tell::{self, Write},
};

/// From the start of a pass to the next, at least: nodes that stop being Ready one after
/// another must not cost one call each.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a woken pass waits for more nodes that change at the same time.
const LINGER: Duration = Duration::from_millis(100);
/// How long to wait when nobody is to be looked at; any change wakes.
const IDLE: Duration = Duration::from_mins(1);

/// Passes until the token is cancelled. The court is a new one: what an earlier leader
/// suspected is no evidence here.
pub(crate) async fn run(controller: Arc<Controller>, token: CancellationToken) {
    let work = async {
        let mut court = Court::new();
        let mut settings = controller.settings.clone();
        while !controller.closing.is_cancelled() {
            let started = Instant::now();
            let next = controller.pass(&mut court).await;
            let due = controller.started + next.0;
            tokio::select! {
                () = sleep_until(due.max(started + PAUSE)) => {}
                () = controller.wake.notified() => sleep(LINGER).await,
                Ok(()) = settings.changed() => {}
                () = controller.closing.cancelled() => {}
            }
            sleep_until(started + PAUSE).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = token.cancelled() => {}
        () = work => {}
    }
}

impl Controller {
    /// One pass. Says when the next one is due if nothing wakes it sooner.
    async fn pass(&self, court: &mut Court) -> At {
        let _passing = self.passing.lock().await;
        let started = Instant::now();
        let nodes = self.look();
        let mut is_done = self.tidy_ready(&nodes).await;
        let agenda = self.agenda(court, &nodes);
        let nodes = if agenda.is_empty() {
            nodes
        } else {
            let heard = tokio::select! {
                biased;
                () = self.closing.cancelled() => return self.now(),
                heard = self.ask(agenda, &nodes) => heard,
            };
            let (nodes, powers) = self.judge(court, heard).await;
            is_done &= self.taint_all(&nodes, &powers).await;
            self.metrics.passed(started.elapsed());
            nodes
        };
        self.show(court, &nodes);
        let next = self.agenda(court, &nodes);
        let now = self.now();
        if !is_done || !next.is_empty() {
            // What failed or found no place in this pass waits a period.
            return now + self.settings().policy.monitor_period;
        }
        next.next.unwrap_or(now + IDLE)
    }

    fn agenda(&self, court: &mut Court, nodes: &Nodes) -> Agenda {
        let now = self.now();
        self.docket.lock().enrol(now, &nodes.subjects);
        let agenda = court.agenda(now, &nodes.subjects, &self.settings().policy);
        for ruling in &agenda.ended {
            self.tell_ruling(self.store.get(&ruling.name).as_deref(), ruling, now);
        }
        agenda
    }

    /// Asks the cloud. Nothing is decided here.
    async fn ask(&self, agenda: Agenda, nodes: &Nodes) -> Heard {
        let by_name: HashMap<&str, &Arc<Node>> =
            nodes.iter().map(|(subject, node)| (&*subject.name, node)).collect();
        let asked: Vec<Arc<Node>> = agenda
            .look_up
            .iter()
            .filter_map(|name| by_name.get(&**name).copied().cloned())
            .collect();
        let call = Call::waiting(self.settings().cloud_call_timeout);
        let start = self.now();
        let lookup = async {
            let answers = instances::lookup(&*self.cloud, &asked, Detail::Presence, call).await;
            (answers, self.now())
        };
        let list = async {
            if !agenda.list {
                return None;
            }
            let fleet = instances::list(&*self.cloud, Detail::Presence, call).await;
            Some((fleet, self.now()))
        };
        let ((answers, answered), fleet) = tokio::join!(lookup, list);
        Heard { asked, answers, fleet, times: (start, answered) }
    }

    /// Lets the court judge by what was heard and the nodes as they are now, and deletes
    /// whom it convicts. Returns the nodes as they were judged, and which machines run.
    async fn judge(&self, court: &mut Court, heard: Heard) -> (Nodes, Powers) {
        let (settings, nodes) = (self.settings(), self.look());
        let Heard { asked, answers, fleet, times: (start, answered) } = heard;
        let lookups: Vec<LookedUp> = asked.iter().zip(answers).map(looked_up).collect();
        let mut powers = Powers::new();
        self.tell_unanswered(&lookups);
        for lookup in &lookups {
            self.metrics.answered(&lookup.testimony);
            if let Testimony::Present(power) = lookup.testimony {
                powers.insert((Arc::clone(&lookup.name), lookup.uid.clone()), power);
            }
        }
        let list = fleet.map(|(fleet, read)| {
            let spell = |id: &str| self.cloud.canonical_id(id).into_owned();
            observe::listing(fleet, spell, &nodes, (start, read))
        });
        if let Some(list) = &list {
            tell::list(list);
        }
        let hearing = Hearing { asked: start, answered, lookups, list };
        let (before, now) = (*court.breaker(), self.now());
        let rulings = court.hear(now, &nodes.subjects, hearing, &settings.policy);
        self.tell_breaker(before, *court.breaker());
        let by_name: HashMap<Name, Arc<Node>> =
            nodes.iter().map(|(_, node)| (Arc::clone(&node.name), Arc::clone(node))).collect();
        for ruling in &rulings {
            if let Some((verdict, waited)) = self.docket.lock().ruled(now, ruling) {
                self.metrics.settled(verdict, waited);
            }
            self.tell_ruling(by_name.get(&ruling.name).map(|node| &**node), ruling, now);
        }
        self.delete_all(court, rulings, &by_name, now, &settings).await;
        (nodes, powers)
    }

    async fn delete_all(
        &self,
        court: &mut Court,
        rulings: Vec<Ruling>,
        nodes: &HashMap<Name, Arc<Node>>,
        now: At,
        judged_by: &Arc<LifecycleSettings>,
    ) {
        let convicted = rulings.into_iter().filter(|ruling| ruling.verdict == Verdict::Delete);
        let deletions = convicted.filter_map(|ruling| {
            let node = Arc::clone(nodes.get(&ruling.name)?);
            Some(async move {
                let result = match self.superseded(judged_by) {
                    Some(why) => Err(Stopped::Superseded(why)),
                    None => self.writer.delete(&node).await.map_err(Stopped::from),
                };
                (node, ruling, result)
            })
        });
        let mut ended =
            stream::iter(deletions).buffer_unordered(judged_by.concurrent_node_lifecycle_syncs);
        while let Some((node, ruling, result)) = ended.next().await {
            let open_for = ruling.since.map(|since| now.since(since)).unwrap_or_default();
            let outcome = result.as_ref().map_or_else(Stopped::outcome, |()| Deletion::Done);
            court.deleted(self.now(), &ruling, outcome, &judged_by.policy);
            match &result {
                Ok(()) => {
                    self.metrics.deleted(Ok(()), open_for);
                    self.tell_deleted(&node, &ruling);
                }
                Err(stopped) => {
                    if let Some(error) = stopped.refusal() {
                        self.metrics.deleted(Err(error), open_for);
                    }
                    self.tell_stopped(&node, Write::Deletion, stopped);
                }
            }
        }
    }

    /// Why what was decided a moment ago is not carried out any more, if so: whoever
    /// lowers the budget or ends the program means the deletions that wait, too.
    fn superseded(&self, judged_by: &Arc<LifecycleSettings>) -> Option<&'static str> {
        if self.closing.is_cancelled() {
            return Some("the program ends");
        }
        let same = Arc::ptr_eq(judged_by, &self.settings());
        (!same).then_some("the settings have changed")
    }

    /// A Ready node loses the taint and the approval to delete it without a question to
    /// the cloud. Returns whether nothing failed, as its siblings do.
    async fn tidy_ready(&self, nodes: &Nodes) -> bool {
        let ready = nodes.iter().filter(|(subject, _)| subject.ready && subject.in_reach());
        let steps = ready.clone().filter_map(|(_, node)| self.taint_step(node, None)).collect();
        let mut is_done = self.write_taints(steps).await;
        for (_, node) in ready.filter(|(_, node)| node.annotations.contains_key(observe::APPROVED))
        {
            // A taint that was just written is another version of the node.
            let Some(node) = self.store.get(&node.name) else { continue };
            match self.end_approval(&node).await {
                Ok(()) => self.tell_approval_ended(&node),
                Err(stopped) => {
                    is_done = false;
                    self.tell_stopped(&node, Write::Approval, &stopped);
                }
            }
        }
        is_done
    }

    async fn taint_all(&self, nodes: &Nodes, powers: &Powers) -> bool {
        let steps = nodes.iter().filter(|(subject, _)| subject.is_watched()).filter_map(
            |(subject, node)| {
                let key = (Arc::clone(&subject.name), subject.uid.clone());
                self.taint_step(node, Some(*powers.get(&key)?))
            },
        );
        self.write_taints(steps.collect()).await
    }

    fn taint_step(&self, node: &Arc<Node>, power: Option<PowerState>) -> Option<Tainting> {
        let removal = self.settings().shutdown_taint_removal;
        let step = shutdown::plan(node.is_ready(), &node.taints, power, removal)?;
        Some((Arc::clone(node), step, power))
    }

    async fn write_taints(&self, steps: Vec<Tainting>) -> bool {
        let writes = steps.into_iter().map(|(node, step, power)| async move {
            let result = self.taint(&node, step).await;
            match &result {
                Ok(()) => {
                    self.metrics.tainted(step.as_str(), Ok(()));
                    self.tell_tainted(&node, step, power);
                }
                Err(stopped) => {
                    if let Some(error) = stopped.refusal() {
                        self.metrics.tainted(step.as_str(), Err(error));
                    }
                    self.tell_stopped(&node, Write::ShutdownTaint, stopped);
                }
            }
            result.is_ok()
        });
        let at_once = self.settings().concurrent_node_lifecycle_syncs;
        stream::iter(writes)
            .buffer_unordered(at_once)
            .fold(true, |all, done| async move { all && done })
            .await
    }

    fn show(&self, court: &Court, nodes: &Nodes) {
        let number =
            |test: fn(&Subject) -> bool| nodes.iter().filter(|(subject, _)| test(subject)).count();
        let standing = States {
            ready: number(|subject| subject.ready),
            foreign: number(|subject| subject.claim == Claim::Foreign),
            unselected: number(|subject| !subject.selected),
            shutdown: nodes.iter().filter(|(_, node)| node.taint(shutdown::KEY).is_some()).count(),
            undecided: self.docket.lock().line(self.now()),
        };
        let budget = court.budget(self.now(), &nodes.subjects, &self.settings().policy);
        self.metrics.waits(court.oldest_case(self.now()));
        self.metrics.stand(court.breaker().is_open(), budget, court.counts(), standing);
    }
}

/// What the cloud said of the machines of nodes, by name and UID.
type Powers = HashMap<(Name, Box<str>), PowerState>;

/// A node, what is to be done about its taint, and what the cloud said of its machine.
type Tainting = (Arc<Node>, Step, Option<PowerState>);

/// What the cloud answered.
struct Heard {
    asked: Vec<Arc<Node>>,
    answers: Vec<LookupResult>,
    fleet: Option<(Result<ccm_cloud::Fleet, ccm_cloud::CloudError>, At)>,
    /// When the first question was asked and the last lookup answered.
    times: (At, At),
}

fn looked_up((node, answer): (&Arc<Node>, LookupResult)) -> LookedUp {
    LookedUp { name: Arc::clone(&node.name), uid: node.uid.clone(), testimony: answer.into() }
}
