//! Finds the load balancer of an owner.

use std::collections::BTreeMap;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, Owner, Wanted};
use ccm_openstack_client::{
    lbaas::{BalancerRow, Filter, Provisioning},
    text::MAX_VALUE,
};

use super::{AT_ONCE, Context, balancer_error, names, ownership};

/// The load balancers that the items of a call look for together.
#[derive(Clone, Debug, Default)]
pub struct BalancerQuery<'a> {
    pub ids: Vec<String>,
    /// The owners whose load balancers are looked for by their tags.
    pub owners: Vec<&'a Owner>,
    /// True if one list of the project should show all of them.
    pub whole: bool,
}

/// Load balancers by ID, and the lines about load balancers that cannot be parsed.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    by_id: BTreeMap<String, BalancerRow>,
    malformed: Vec<String>,
    /// The load balancers of owners in a common search, by the UID of the Service.
    tagged: BTreeMap<String, Vec<BalancerRow>>,
}

/// The search result for an owner.
#[derive(Clone, Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// Nothing, and the earlier load balancer of the Service is gone, for this reason.
    Gone(String),
    /// Its own.
    Own(Box<BalancerRow>),
    /// A load balancer of another controller that it should adopt.
    Adoptable(Box<BalancerRow>),
}

impl Rows {
    /// Returns the load balancer with this ID. One that Octavia only remembers as deleted does not
    /// count.
    pub fn get(&self, id: &str) -> Result<Option<&BalancerRow>, CloudError> {
        let row = self.by_id.get(id).filter(|row| exists(row));
        match self.malformed.iter().find(|line| row.is_none() && line.contains(id)) {
            Some(line) => Err(CloudError::new(ErrorKind::Malformed, line.clone())),
            None => Ok(row),
        }
    }
}

/// Returns the UID of an owner, and its load balancers among these.
fn of_owner(rows: &[BalancerRow], owner: &Owner) -> (String, Vec<BalancerRow>) {
    let own = names::owner_tags(owner);
    let is_own = |row: &&BalancerRow| own.iter().all(|tag| row.tags.contains(tag));
    (owner.uid.clone(), oldest_first(rows.iter().filter(is_own).cloned().collect()))
}

/// Returns the load balancers that exist, the oldest first.
fn oldest_first(mut rows: Vec<BalancerRow>) -> Vec<BalancerRow> {
    rows.retain(exists);
    rows.sort_by(|one, other| (&one.created_at, &one.id).cmp(&(&other.created_at, &other.id)));
    rows
}

/// Returns the error about a load balancer that does not exist.
pub fn unknown(id: &str) -> CloudError {
    balancer_error(ErrorKind::NotFound, id, format!("the project has no load balancer {id}"))
}

fn exists(row: &BalancerRow) -> bool {
    row.provisioning_status != Provisioning::Deleted
}

/// Returns the first search of a call, for all its items together: one request for the load
/// balancers with these IDs, and another one for these owners'.
pub async fn rows(cx: Context<'_>, look: &BalancerQuery<'_>) -> Result<Rows, CloudError> {
    if look.whole {
        let listed = cx.octavia.balancers(Filter::All, cx.call).await?;
        let complete = look.owners.iter().filter(|_| listed.malformed.is_empty());
        let tagged = complete.map(|owner| of_owner(&listed.rows, owner)).collect();
        let wanted = listed.rows.into_iter().filter(|row| look.ids.contains(&row.id));
        let by_id = wanted.map(|row| (row.id.clone(), row)).collect();
        return Ok(Rows { by_id, malformed: listed.malformed, tagged });
    }
    let by_id = cx.octavia.balancers(Filter::Ids(&look.ids), cx.call);
    let (listed, tagged) = tokio::try_join!(by_id, tagged_of(cx, &look.owners))?;
    let by_id = listed.rows.into_iter().map(|row| (row.id.clone(), row)).collect();
    Ok(Rows { by_id, malformed: listed.malformed, tagged })
}

/// Returns the load balancers of each of these owners by their tags. It returns no load balancers of
/// an owner if this saves nothing, or if they may be incomplete: [`Self::tagged`] looks for them.
async fn tagged_of(
    cx: Context<'_>,
    owners: &[&Owner],
) -> Result<BTreeMap<String, Vec<BalancerRow>>, CloudError> {
    // With more owners, the last load balancers would be created long after this look.
    let Some(first) = owners.first().filter(|first| {
        let are_of_one = owners.iter().all(|owner| owner.cluster == first.cluster);
        are_of_one && (2..=AT_ONCE).contains(&owners.len())
    }) else {
        return Ok(BTreeMap::new());
    };
    let [cluster, _] = names::owner_tags(first);
    let services: Vec<String> =
        owners.iter().map(|owner| names::owner_tags(owner)).map(|[_, uid]| uid).collect();
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let listed = cx.octavia.balancers(Filter::AnyTag(&cluster, &services), cx.call).await?;
    let complete = owners.iter().filter(|_| listed.malformed.is_empty());
    Ok(complete.map(|owner| of_owner(&listed.rows, owner)).collect())
}

/// Returns the load balancers of an owner by their tags, the oldest first.
pub async fn tagged(
    cx: Context<'_>,
    owner: &Owner,
    rows: &Rows,
) -> Result<Vec<BalancerRow>, CloudError> {
    if let Some(tagged) = rows.tagged.get(&owner.uid) {
        return Ok(tagged.clone());
    }
    let tags = names::owner_tags(owner);
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let listed = cx.octavia.balancers(Filter::Tags(&tags), cx.call).await?;
    if let Some(line) = listed.malformed.first() {
        let what = format!("a load balancer of Service {owner} cannot be parsed: {line}");
        let error = CloudError::new(ErrorKind::Malformed, what);
        return Err(CloudError { request_id: listed.request_id, ..error });
    }
    Ok(oldest_first(listed.rows))
}

/// Returns the load balancer that the Service has had and that no list shows. A list may be short,
/// or of another project, so Octavia is asked for this one before another one is created.
async fn unlisted(cx: Context<'_>, id: &str, owner: &Owner) -> Result<Found, CloudError> {
    if !names::is_id(id) {
        let id = one_line(id, MAX_VALUE);
        return Ok(Found::Gone(format!("{id:?} is not an ID that Octavia assigns")));
    }
    match cx.octavia.balancer(id, cx.call).await? {
        Some(row) if !exists(&row) => {
            Ok(Found::Gone(format!("load balancer {id} is {}", row.provisioning_status)))
        }
        Some(row) if ownership::is_ours(&row, owner) => Ok(Found::Own(Box::new(row))),
        Some(row) => Err(ownership::not_ours(&row, owner)),
        None => Ok(Found::Gone(format!("Octavia has no load balancer {id}"))),
    }
}

/// Finds an owner's load balancer. `rows` are the rows that the item names.
pub async fn find(cx: Context<'_>, wanted: &Wanted, rows: &Rows) -> Result<Found, CloudError> {
    let owner = &wanted.front_end.owner;
    let known = wanted.known.as_deref().map(|id| rows.get(id)).transpose()?.flatten();
    let own = match known {
        Some(row) if ownership::is_ours(row, owner) => Some(row.clone()),
        Some(row) if wanted.adopt.as_ref() != Some(&row.id) => {
            return Err(ownership::not_ours(row, owner));
        }
        _ => match tagged(cx, owner, rows).await?.into_iter().next() {
            Some(row) if ownership::is_ours(&row, owner) => Some(row),
            Some(row) => return Err(ownership::not_ours(&row, owner)),
            None => None,
        },
    };
    let Some(id) = &wanted.adopt else {
        return match (own, &wanted.known) {
            (Some(row), _) => Ok(Found::Own(Box::new(row))),
            (None, Some(id)) => unlisted(cx, id, owner).await,
            (None, None) => Ok(Found::Nothing),
        };
    };
    let Some(row) = rows.get(id)?.cloned() else {
        if let Some(own) = own {
            return Ok(Found::Own(Box::new(own)));
        }
        return Err(unknown(id));
    };
    match own {
        Some(own) if own.id == row.id => Ok(Found::Own(Box::new(own))),
        Some(own) => {
            let what = format!(
                "Service {owner} has load balancer {} already, and adopts no second one: {id}",
                own.id
            );
            Err(balancer_error(ErrorKind::Conflict, id, what))
        }
        None if ownership::is_adoptable(&row, owner) => Ok(Found::Adoptable(Box::new(row))),
        None => Err(ownership::not_ours(&row, owner)),
    }
}
