//! The provider contract over the simulated machines.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, Call, CallClass, CallReport, Claim, Cloud, CloudError, Detail,
    ErrorKind, Fleet, InstanceTraits, Instances, LoadBalancers, Lookup, LookupResult, NodeIdentity,
    Permit, ProofMethod, Routes, one_each,
};
use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Operation, PAGE, SCHEME, SimCloud, SimInstance};
use crate::faults::FaultEffect;

#[async_trait]
impl Cloud for SimCloud {
    fn name(&self) -> &str {
        SCHEME
    }

    fn schemes(&self) -> Vec<String> {
        vec![self.scheme()]
    }

    fn identity(&self) -> Option<String> {
        SimCloud::identity(self)
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Ok(Some(Arc::new(self.clone())))
    }

    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        let offered = self.balancers().offered();
        Ok(offered.then(|| Arc::new(self.clone()) as Arc<dyn LoadBalancers>))
    }

    fn routes(&self) -> Result<Option<Arc<dyn Routes>>, CloudError> {
        let offered = self.router().settings().offered;
        Ok(offered.then(|| Arc::new(self.clone()) as Arc<dyn Routes>))
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        self.call(Operation::Health, 0, call).await.map(|_| ())
    }

    async fn changed(&self) {
        self.balancers().configured().await;
    }
}

#[async_trait]
impl Instances for SimCloud {
    fn traits(&self) -> InstanceTraits {
        *self.state.traits.read()
    }

    async fn lookup(&self, nodes: &[NodeIdentity], _: Detail, call: Call) -> Vec<LookupResult> {
        let mut answers = Vec::with_capacity(nodes.len());
        for batch in nodes.chunks(PAGE) {
            match self.call(Operation::Lookup, batch.len(), call).await {
                Ok(effect) => answers.extend(self.answer(batch, effect.as_ref())),
                Err(error) => answers.extend(vec![Err(error); batch.len()]),
            }
        }
        answers
    }

    fn lookup_each<'a>(
        &'a self,
        nodes: &'a [NodeIdentity],
        detail: Detail,
        call: Call,
    ) -> Answers<'a, Lookup> {
        let size = if self.state.faults.streams() { 1 } else { nodes.len().max(1) };
        let answers = stream::iter(nodes.chunks(size)).then(move |part| async move {
            let answers = self.lookup(part, detail, call).await;
            stream::iter(one_each(answers, part.len()))
        });
        answers.flatten().enumerate().boxed()
    }

    async fn list(&self, call: Call) -> Result<Fleet, CloudError> {
        if !Instances::traits(self).lists {
            return Err(CloudError::new(ErrorKind::Unsupported, "this cloud has no list"));
        }
        let all: Vec<SimInstance> = self.state.fleet.read().iter().cloned().collect();
        let mut fleet = Fleet::default();
        let mut pages = all.chunks(PAGE);
        // An empty cloud also has one page.
        let mut page = pages.next().unwrap_or_default();
        loop {
            let effect = self.call(Operation::List, 0, call).await?;
            match effect {
                Some(FaultEffect::EmptyList | FaultEffect::WrongProject) => {
                    return Ok(Fleet::default());
                }
                Some(FaultEffect::TruncatedList(most)) => {
                    add(&mut fleet, page, None);
                    fleet.instances.truncate(most);
                    return Ok(fleet);
                }
                effect => add(&mut fleet, page, effect.as_ref()),
            }
            let Some(next) = pages.next() else { return Ok(fleet) };
            page = next;
        }
    }
}

fn class(operation: Operation) -> CallClass {
    let service = if operation.is_about_routes() { "routes" } else { SCHEME };
    match operation.writes() {
        true => CallClass::write(service, operation.as_str()),
        false => CallClass::read(service, operation.as_str()),
    }
}

fn late(operation: Operation) -> CloudError {
    CloudError::new(ErrorKind::Timeout, format!("{} took too long", operation.as_str()))
}

/// Adds a page of the list.
fn add(fleet: &mut Fleet, page: &[SimInstance], effect: Option<&FaultEffect>) {
    for instance in page {
        if is_malformed(instance, effect) {
            fleet.malformed.push(nonsense(instance));
        } else {
            fleet.instances.push(instance.describe());
        }
    }
}

fn is_malformed(instance: &SimInstance, effect: Option<&FaultEffect>) -> bool {
    match effect {
        Some(FaultEffect::MalformedInstances(names)) => {
            names.is_empty() || names.contains(&instance.name)
        }
        _ => false,
    }
}

fn nonsense(instance: &SimInstance) -> String {
    format!(
        "instance {:?} ({:?}): the cloud's answer does not make sense",
        instance.id, instance.name
    )
}

impl SimCloud {
    /// Makes one call to the cloud: it passes the gate, is counted, and is hit by the planned
    /// faults.
    pub(super) async fn call(
        &self,
        operation: Operation,
        items: usize,
        call: Call,
    ) -> Result<Option<FaultEffect>, CloudError> {
        let _permit = self.admit(operation, items, call).await?;
        self.strike(operation, items, call).await
    }

    /// Makes the first half of a call: it passes the gate and is counted.
    pub(super) async fn admit(
        &self,
        operation: Operation,
        items: usize,
        call: Call,
    ) -> Result<Permit, CloudError> {
        let permit = timeout_at(call.end, self.gate.admit(class(operation), call))
            .await
            .map_err(|_| late(operation))??;
        if Instant::now() >= call.end {
            return Err(late(operation));
        }
        self.state.counter.count(operation, items);
        Ok(permit)
    }

    /// Makes the second half of a call: the planned faults hit it.
    pub(super) async fn strike(
        &self,
        operation: Operation,
        items: usize,
        call: Call,
    ) -> Result<Option<FaultEffect>, CloudError> {
        let started = Instant::now();
        let outcome = timeout_at(call.end, self.inject(operation, items)).await;
        let outcome = outcome.unwrap_or_else(|_| {
            let error = late(operation);
            Err(if operation.writes() { error.that_may_be_done() } else { error })
        });
        let error = outcome.as_ref().err();
        let report = CallReport {
            error: error.map(|error| error.kind),
            retry_after: error.and_then(|error| error.retry_after),
            took: started.elapsed(),
        };
        self.gate.report(class(operation), report);
        outcome
    }

    /// Injects the faults planned for this call: an error, or an effect on its answer.
    async fn inject(
        &self,
        operation: Operation,
        nodes: usize,
    ) -> Result<Option<FaultEffect>, CloudError> {
        let strike = self.state.faults.strike(operation);
        if !strike.delay.is_zero() {
            sleep(strike.delay).await;
        }
        if !strike.each.is_zero() {
            for _ in 0..nodes {
                let _worker = self.state.worker.lock().await;
                sleep(strike.each).await;
            }
        }
        match strike.effect {
            Some(FaultEffect::Hang) => std::future::pending().await,
            Some(effect) => effect.error().map_or(Ok(Some(effect)), Err),
            None => Ok(None),
        }
    }

    fn answer(&self, batch: &[NodeIdentity], effect: Option<&FaultEffect>) -> Vec<LookupResult> {
        if let Some(FaultEffect::FailCalls(names, error)) = effect
            && batch.iter().any(|node| names.contains(&node.name))
        {
            return vec![Err(error.clone()); batch.len()];
        }
        let mut answers: Vec<LookupResult> =
            batch.iter().map(|node| self.look(node, effect)).collect();
        if let Some(FaultEffect::AnswerCount(more)) = effect {
            let count = answers.len().saturating_add_signed(*more);
            let filler = CloudError::new(ErrorKind::NotFound, "a result without a node");
            answers.resize(count, Err(filler));
        }
        answers
    }

    /// Looks for one node's machine: by provider ID, otherwise by system UUID, otherwise by name.
    fn look(&self, node: &NodeIdentity, effect: Option<&FaultEffect>) -> LookupResult {
        let fleet = self.state.fleet.read();
        if let Some(FaultEffect::FailNodes(names, error)) = effect
            && names.contains(&node.name)
        {
            return Err(error.clone());
        }
        let hidden = effect == Some(&FaultEffect::WrongProject);
        let id = node.provider_id.as_deref().filter(|id| !id.is_empty());
        let (found, method, what) = match (self.claim(id), id) {
            (Claim::Foreign, Some(id)) => {
                return Ok(Lookup::NotOurs(format!(
                    "provider ID {id:?} is not of the form {SCHEME}://<id>"
                )));
            }
            (Claim::Ours, Some(id)) => {
                (fleet.spelt(id), ProofMethod::ById, format!("no instance {id}"))
            }
            _ => {
                let by_uuid = node
                    .system_uuid
                    .as_deref()
                    .map(|uuid| fleet.with_uuid(uuid))
                    .unwrap_or_default();
                let found = if by_uuid.is_empty() { fleet.named(&node.name) } else { by_uuid };
                (found, ProofMethod::ByName, format!("no instance named {:?}", node.name))
            }
        };
        match found.as_slice() {
            [] => Ok(Lookup::Gone(AbsenceProof {
                method,
                evidence: what,
                request_id: None,
                kept: None,
            })),
            _ if hidden => Ok(Lookup::Gone(AbsenceProof {
                method,
                evidence: what,
                request_id: None,
                kept: None,
            })),
            [one] if is_malformed(one, effect) => {
                Err(CloudError::new(ErrorKind::Malformed, nonsense(one)))
            }
            [one] => Ok(Lookup::Found(Box::new(one.describe()))),
            several => {
                let ids: Vec<_> = several.iter().map(|instance| instance.id.as_str()).collect();
                let what = format!(
                    "node {:?} matches {} instances: {}",
                    node.name,
                    ids.len(),
                    ids.join(", ")
                );
                Err(CloudError::new(ErrorKind::Conflict, what))
            }
        }
    }
}
