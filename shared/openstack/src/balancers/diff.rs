//! Computes the changes that bring a load balancer to the wanted state. Pure.
//!
//! The order keeps as many ports up as possible. Objects that block a port are deleted first. Then
//! missing objects are created, different ones are changed, and leftover ones are deleted. Tags and
//! digest come last, so a recorded digest says that all earlier changes were done.

mod children;

use std::collections::BTreeSet;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, Digest, ErrorKind, IpFamily, Members, Owner, Protocol};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Child, ListenerRow, PoolRow},
    text::MAX_VALUE,
};
use serde_json::json;

use super::{
    annotations::Selector,
    current::Seen,
    merge::{Shape, changed},
    names,
    spec::{Listener, Tree, key},
    steps::{Act, Step},
};

/// The wanted state of one load balancer.
#[derive(Clone, Copy, Debug)]
pub struct Goal<'a> {
    pub owner: &'a Owner,
    pub digest: Digest,
    pub tree: &'a Tree,
    /// Tags that a user adds to the load balancer.
    pub tags: &'a [String],
    pub members: &'a Members,
    /// The family of the members' addresses.
    pub family: IpFamily,
    pub selector: &'a Selector,
    pub subnet: Option<&'a str>,
    /// True if this process has changed its configuration since the digest was stored.
    pub touched: bool,
}

impl<'a> Goal<'a> {
    /// Returns the common shape of the members of a listener's pool; `None` if it has no members.
    pub fn shape(&self, listener: &Listener) -> Option<Shape<'a>> {
        let Self { family, selector, subnet, .. } = *self;
        let (port, monitor_port) = (listener.pool.member_port?, listener.pool.monitor_port);
        Some(Shape { port, family, selector, subnet, monitor_port })
    }
}

/// Returns the changes below and at a load balancer, in order. The changes of its floating IP go
/// before the last one. Fails if a listener of another owner is in the way.
pub fn diff(seen: &Seen, goal: &Goal<'_>, floating: Vec<Step>) -> Result<Vec<Step>, CloudError> {
    let name = names::of_existing(&seen.row.name, &seen.row.tags, goal.owner);
    let wanted: BTreeSet<(Protocol, u16)> =
        goal.tree.listeners.iter().map(|one| (one.transport, one.port)).collect();
    let (mut steps, mut updates) = (Vec::new(), Vec::new());
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    let mut creations = Vec::new();
    let mark = Mark::new(&seen.row, &name, goal.owner);
    let is_ours = |one: &ListenerRow| mark.is_on("listener", &one.name, &one.tags);
    for listener in &goal.tree.listeners {
        let there =
            seen.listeners.iter().find(|one| key(one) == (listener.transport, listener.port));
        if let Some(there) = there.filter(|one| !is_ours(one)) {
            return Err(in_the_way(there, listener));
        }
        match there {
            Some(there) if there.protocol == listener.protocol => {
                let pool = seen.pool_of(there);
                kept.extend(pool.map(|pool| &*pool.id));
                updates.extend(children::listener(there, listener));
                children::pool(seen, there, pool, listener, goal, &mut steps, &mut updates);
            }
            there => {
                if listener.protocol == "TERMINATED_HTTPS" {
                    return Err(no_tls(listener));
                }
                if let Some(there) = there {
                    steps.extend(children::removal(seen, there));
                }
                children::creation(listener, goal, &mut creations);
            }
        }
    }
    // Objects that block a port are deleted before anything is created.
    steps.append(&mut creations);
    steps.append(&mut updates);
    for listener in &seen.listeners {
        if !wanted.contains(&key(listener)) && is_ours(listener) {
            steps.extend(children::removal(seen, listener));
        }
    }
    for pool in seen.pools.iter().filter(|pool| !kept.contains(&*pool.id)) {
        if pool.listeners.is_empty() && mark.is_on("pool", &pool.name, &pool.tags) {
            let line = format!("delete pool {} ({}), which has no listener", pool.id, pool.name);
            steps.push(Step::new(line, Act::Delete(Child::Pool, pool.id.clone())));
        }
    }
    steps.extend(floating);
    let changes_configuration = steps.iter().any(|step| step.act.changes_configuration());
    steps.extend(tags(seen, goal, &name, changes_configuration || goal.touched));
    Ok(steps)
}

/// The mark of listeners and pools that were made for this owner's load balancer.
struct Mark<'a> {
    name: &'a str,
    /// The names that the load balancer has or had.
    balancers: Vec<&'a str>,
    owner: [String; 2],
}

impl<'a> Mark<'a> {
    fn new(row: &'a BalancerRow, name: &'a str, owner: &Owner) -> Self {
        let tags = row.tags.iter().map(String::as_str);
        let balancers = [name, row.name.as_str()].into_iter().chain(tags).collect();
        Self { name, balancers, owner: names::owner_tags(owner) }
    }

    /// Returns true if the tags show it. An object without tags was made by a person, or before
    /// tags existed: then its name decides.
    fn is_on(&self, kind: &str, child: &str, tags: &[String]) -> bool {
        match tags.is_empty() {
            true => names::is_child(kind, child, self.balancers.iter().copied()),
            false => tags.iter().any(|tag| tag == self.name || self.owner.contains(tag)),
        }
    }
}

/// Names the listeners on a load balancer that are not its owner's, and the pools that none of its
/// own listeners has. They would go with it.
pub fn of_others(
    row: &BalancerRow,
    listeners: &[ListenerRow],
    pools: &[PoolRow],
    owner: &Owner,
) -> Vec<String> {
    let name = names::of_existing(&row.name, &row.tags, owner);
    let mark = Mark::new(row, &name, owner);
    let (own, others): (Vec<_>, Vec<_>) =
        listeners.iter().partition(|one| mark.is_on("listener", &one.name, &one.tags));
    let is_of_own = |pool: &PoolRow| {
        own.iter().any(|one| {
            one.default_pool_id.as_ref() == Some(&pool.id)
                || pool.listeners.iter().any(|of| of.id == one.id)
        })
    };
    let pools = pools.iter();
    let pools = pools.filter(|one| !mark.is_on("pool", &one.name, &one.tags) && !is_of_own(one));
    let in_words =
        |kind: &str, id: &str, name: &str| format!("{kind} {id} ({})", one_line(name, MAX_VALUE));
    let others = others.into_iter().map(|one| in_words("listener", &one.id, &one.name));
    others.chain(pools.map(|one| in_words("pool", &one.id, &one.name))).collect()
}

fn in_the_way(there: &ListenerRow, listener: &Listener) -> CloudError {
    let what = format!(
        "listener {} ({}) of another owner has {} port {}: delete it, or choose another port for \
         the Service",
        there.id, there.name, listener.transport, listener.port
    );
    let subject = format!("{}/{}", listener.port, listener.transport);
    CloudError::new(ErrorKind::Conflict, what).about(subject)
}

fn no_tls(listener: &Listener) -> CloudError {
    let key = format!("annotation {}default-tls-container-ref", super::annotations::PREFIX);
    let what = format!(
        "{key}: {} port {} has no listener with TLS, which cannot be created yet: remove it, or set \
         it to the empty text",
        listener.transport, listener.port
    );
    CloudError::new(ErrorKind::Invalid, what).about(key)
}

/// Returns the last change: tags and digest.
fn tags(seen: &Seen, goal: &Goal<'_>, name: &str, changes: bool) -> Option<Step> {
    let stored = names::digest(&seen.row.tags);
    let is_stale = stored != Some(goal.digest);
    let records = goal.digest.differs_from(stored) || changes && is_stale;
    let has = |tag: &&String| !seen.row.tags.contains(tag);
    let missing: Vec<String> = goal.tags.iter().filter(has).cloned().collect();
    let lacks_name = !seen.row.tags.iter().any(|tag| tag == name);
    if !records && missing.is_empty() && !lacks_name {
        return None;
    }
    let mut tags: Vec<String> = seen
        .row
        .tags
        .iter()
        .filter(|tag| !tag.is_empty() && !tag.starts_with(names::DIGEST))
        // Removes the mark of an earlier configuration: the new configuration gets health monitors
        // again.
        .filter(|tag| {
            !tag.starts_with(names::TAKEN_BACK)
                || **tag == names::tag(names::TAKEN_BACK, goal.digest)
        })
        .cloned()
        .collect();
    tags.extend(lacks_name.then(|| name.to_owned()));
    tags.extend(missing);
    let digest = if records { Some(goal.digest) } else { stored };
    tags.extend(digest.map(|digest| names::tag(names::DIGEST, digest)));
    let line = match records {
        true => {
            format!("record with load balancer {} that this configuration is applied", seen.row.id)
        }
        false => format!("change the tags of load balancer {}", seen.row.id),
    };
    Some(Step::new(line, Act::Balancer(json!({ "tags": tags }))))
}

/// Returns the members of a pool, if they must be changed.
fn members(seen: &Seen, pool: &str, listener: &Listener, goal: &Goal<'_>) -> Option<Step> {
    let shape = goal.shape(listener)?;
    let members = changed(seen.members_of(pool), goal.members, shape)?;
    let line = children::members_line(members.len(), listener);
    Some(Step::new(line, Act::Members { pool: pool.to_owned(), members }))
}

#[cfg(test)]
mod tests;
