//! The provider contract over the load balancers: batches, faults, lost answers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_cloud::{
    AbsenceProof, Answers, Call, CloudError, ClusterId, Depth, ErrorKind, LoadBalancer,
    LoadBalancerList, LoadBalancerTraits, LoadBalancers, MemberChange, MembersSet, NodeSelector,
    Owner, Progress, Scope, Unwanted, Wanted, repeated,
};
use tokio::time::Instant;

use super::changes::selector;
use super::store::{Context, Late, Store};
use crate::{
    cloud::{
        Operation, PAGE, SimCloud,
        batch::{self, Batch, lost},
    },
    faults::{FaultEffect, Trouble},
};

/// How a batch is carried out.
struct Work<T, A> {
    operation: Operation,
    owner: fn(&T) -> &Owner,
    act: Act<T, A>,
}

/// The action for one item.
type Act<T, A> = fn(&mut Store, &T, &Context) -> Result<A, CloudError>;

#[async_trait]
impl LoadBalancers for SimCloud {
    fn traits(&self) -> LoadBalancerTraits {
        self.balancers().0.lock().settings.traits.clone()
    }

    fn selector(&self, settings: &BTreeMap<String, String>) -> NodeSelector {
        selector(settings, &self.balancers().0.lock().settings)
    }

    async fn list(
        &self,
        cluster: &ClusterId,
        scope: Scope,
        depth: Depth,
        call: Call,
    ) -> Result<LoadBalancerList, CloudError> {
        if !LoadBalancers::traits(self).lists {
            return Err(CloudError::new(ErrorKind::Unsupported, "this cloud has no list"));
        }
        let ids: Vec<String> = self.balancers().settled(|store| {
            let all = store.balancers.values();
            all.filter(|it| it.is_in(&scope, cluster)).map(|it| it.id.clone()).collect()
        });
        let mut list = LoadBalancerList::default();
        let mut pages = ids.chunks(PAGE);
        // An empty cloud also has one page.
        let mut page = pages.next().unwrap_or_default();
        loop {
            match self.call(Operation::ListLoadBalancers, 0, call).await? {
                Some(FaultEffect::EmptyList | FaultEffect::WrongProject) => {
                    return Ok(LoadBalancerList::default());
                }
                Some(FaultEffect::TruncatedList(most)) => {
                    self.read(page, cluster, depth, &mut list);
                    list.load_balancers.truncate(most);
                    return Ok(list);
                }
                _ => self.read(page, cluster, depth, &mut list),
            }
            let Some(next) = pages.next() else { return Ok(list) };
            page = next;
        }
    }

    fn ensure<'a>(
        &'a self,
        wanted: &'a [Wanted],
        call: Call,
    ) -> Answers<'a, Progress<LoadBalancer>> {
        self.batch(
            wanted,
            call,
            Work {
                operation: Operation::EnsureLoadBalancers,
                owner: |wanted| &wanted.front_end.owner,
                act: Store::ensure,
            },
        )
    }

    fn preview<'a>(&'a self, wanted: &'a [Wanted], call: Call) -> Answers<'a, Vec<String>> {
        self.batch(
            wanted,
            call,
            Work {
                operation: Operation::PreviewLoadBalancers,
                owner: |wanted| &wanted.front_end.owner,
                act: Store::preview,
            },
        )
    }

    fn set_members<'a>(
        &'a self,
        changes: &'a [MemberChange],
        call: Call,
    ) -> Answers<'a, Progress<MembersSet>> {
        self.batch(
            changes,
            call,
            Work {
                operation: Operation::SetMembers,
                owner: |change| &change.owner,
                act: Store::set_members,
            },
        )
    }

    fn delete<'a>(
        &'a self,
        unwanted: &'a [Unwanted],
        call: Call,
    ) -> Answers<'a, Progress<AbsenceProof>> {
        self.batch(
            unwanted,
            call,
            Work {
                operation: Operation::DeleteLoadBalancers,
                owner: |unwanted| &unwanted.owner,
                act: Store::delete,
            },
        )
    }
}

impl SimCloud {
    /// Adds a page of the list, without load balancers that were deleted since the list began.
    fn read(
        &self,
        page: &[String],
        cluster: &ClusterId,
        depth: Depth,
        list: &mut LoadBalancerList,
    ) {
        self.balancers().settled(|store| {
            for balancer in page.iter().filter_map(|id| store.balancers.get(id)) {
                let (id, names) = (&balancer.id, balancer.names());
                let trouble = self.faults().trouble(Operation::ListLoadBalancers, &names);
                if trouble == Some(Trouble::Malformed) {
                    let line =
                        format!("load balancer {id}: the cloud's answer does not make sense");
                    list.malformed.push(line);
                } else {
                    let shown = store.describe(id, cluster, depth, Instant::now());
                    list.load_balancers.extend(shown);
                }
            }
        });
    }

    fn batch<'a, T: Clone + Send + Sync + 'static, A: Send + 'static>(
        &'a self,
        items: &'a [T],
        call: Call,
        work: Work<T, A>,
    ) -> Answers<'a, A> {
        batch::answers(work.operation, items.len(), call, async move {
            self.work(items, call, &work).await
        })
    }

    async fn work<T: Clone + Send + 'static, A: 'static>(
        &self,
        items: &[T],
        call: Call,
        work: &Work<T, A>,
    ) -> Result<Batch<A>, CloudError> {
        let most = LoadBalancers::traits(self).max_batch.max(1);
        if items.len() > most {
            let what = format!("{} load balancers in one call, at most {most}", items.len());
            return Err(CloudError::new(ErrorKind::Invalid, what));
        }
        let operation = work.operation;
        let permit = self.admit(operation, items.len(), call).await?;
        // The objects that are found now decide what is created, not the objects at the arrival of
        // the write.
        let found: Vec<bool> = self.balancers().settled(|store| {
            let owners = items.iter().map(|item| (work.owner)(item));
            owners.map(|owner| store.owned(owner).next().is_some()).collect()
        });
        let effect = self.strike(operation, items.len(), call).await?;
        let mut batch = Batch::new(permit);
        let mut refused = match operation.writes() {
            true => repeated(items.iter().map(work.owner)),
            false => BTreeMap::new(),
        };
        for (at, (item, found)) in items.iter().zip(found).enumerate() {
            if let Some(error) = refused.remove(&at) {
                batch.answers.push((at, Err(error)));
                continue;
            }
            let names = [(work.owner)(item).to_string()];
            let context = Context {
                now: Instant::now(),
                term: batch.permit.term.or(call.term),
                trouble: self.faults().trouble(operation, &names),
                found,
                wrong_project: effect == Some(FaultEffect::WrongProject),
            };
            let answer = match &context.trouble {
                Some(Trouble::Hang) => {
                    batch.unanswered.push(at);
                    continue;
                }
                Some(Trouble::Fail(error)) => Err(error.clone()),
                Some(Trouble::Late(after)) => {
                    let due = context.now + *after;
                    self.balancers().0.lock().delay(due, later(work.act, item, &context));
                    Err(lost(operation, ErrorKind::Unavailable, "the connection was cut"))
                }
                _ => self.balancers().settled(|store| (work.act)(store, item, &context)),
            };
            let is_lost = context.trouble == Some(Trouble::LoseAnswer) && answer.is_ok();
            let error = || lost(operation, ErrorKind::Unavailable, "the connection was cut");
            batch.answers.push((at, if is_lost { Err(error()) } else { answer }));
        }
        Ok(batch)
    }
}

/// Returns a request to be carried out later.
fn later<T: Clone + Send + 'static, A: 'static>(
    act: Act<T, A>,
    item: &T,
    context: &Context,
) -> Late {
    let (item, context) = (item.clone(), context.clone());
    Box::new(move |store, now| drop(act(store, &item, &Context { now, trouble: None, ..context })))
}
