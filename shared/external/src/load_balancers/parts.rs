//! How large calls are split into messages.

use std::collections::{BTreeMap, HashSet};

use ccm_cloud::{FrontEnd, Member, MemberChange, Members, Unwanted, Wanted};

use crate::exchange::MAX_PART;

/// The approximate size in bytes of the names, IDs and keys of one load balancer, port or member.
const SMALL: usize = 64;

/// Distributes the items of a call over its messages. A list of members that several items share
/// counts once. An item that is too large on its own is sent alone, so that it fails alone.
pub fn split<'i, 'a, T>(
    items: &'i [(usize, &'a T)],
    most: usize,
    members: impl Fn(&'a T) -> Option<&'a Members>,
    size: impl Fn(&'a T) -> usize,
) -> Vec<&'i [(usize, &'a T)]> {
    let (mut parts, mut begin, mut sum) = (Vec::new(), 0, 0);
    let mut lists = HashSet::new();
    for (at, (_, item)) in items.iter().enumerate() {
        let more = |lists: &mut HashSet<*const Member>| {
            let of_members = members(item).map_or(0, |members| {
                let is_new = lists.insert(members.present.as_ptr());
                size_of(&members.absent) + if is_new { size_of(&members.present) } else { 0 }
            });
            size(item) + of_members
        };
        let own = more(&mut lists);
        if at > begin && (at - begin == most || sum + own > MAX_PART) {
            parts.push(&items[begin..at]);
            lists.clear();
            (begin, sum) = (at, more(&mut lists));
        } else {
            sum += own;
        }
    }
    if begin < items.len() {
        parts.push(&items[begin..]);
    }
    parts
}

fn size_of(members: &[Member]) -> usize {
    let size = |member: &Member| {
        let id = member.provider_id.as_ref().map_or(0, |id| id.as_str().len());
        let addresses: usize = member.addresses.iter().map(|one| 8 + one.address.len()).sum();
        16 + member.node.len() + id + addresses + size_of_map(&member.labels)
    };
    members.iter().map(size).sum()
}

fn size_of_map(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| 8 + key.len() + value.len()).sum()
}

/// Returns the size of what is wanted, in bytes, without its members.
pub fn size_of_wanted(wanted: &Wanted) -> usize {
    size_of_front_end(&wanted.front_end)
}

/// Returns the size of a change, in bytes, without its members.
pub fn size_of_change(change: &MemberChange) -> usize {
    4 * SMALL + change.front_end.as_deref().map_or(0, size_of_front_end)
}

/// Returns the size of what is unwanted, in bytes.
pub fn size_of_unwanted(unwanted: &Unwanted) -> usize {
    let service = unwanted.service.as_ref().map_or(0, |service| service.len());
    4 * SMALL + unwanted.settings.as_ref().map_or(0, size_of_map) + service
}

fn size_of_front_end(front_end: &FrontEnd) -> usize {
    let small = 4 + front_end.ports.len() + front_end.source_ranges.len();
    let service = front_end.service.as_ref().map_or(0, |service| service.len());
    small * SMALL + size_of_map(&front_end.settings) + service
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// This number fills a message.
    const FULL: usize = MAX_PART / 20;

    fn members(count: usize) -> Arc<[Member]> {
        let one = |number| Member {
            node: format!("{number:04}"),
            provider_id: None,
            addresses: Vec::new(),
            labels: Arc::default(),
        };
        (0..count).map(|number| one(number % 10_000)).collect()
    }

    fn sizes<T>(
        items: &[T],
        most: usize,
        members: fn(&T) -> Option<&Members>,
        size: fn(&T) -> usize,
    ) -> Vec<usize> {
        let items: Vec<_> = items.iter().enumerate().collect();
        split(&items, most, members, size).iter().map(|part| part.len()).collect()
    }

    fn sizes_by_members(items: &[Members], most: usize) -> Vec<usize> {
        sizes(items, most, |members| Some(members), |_| 0)
    }

    #[test]
    fn a_list_that_load_balancers_share_counts_once_in_a_message() {
        let with =
            |present: &Arc<[Member]>| Members { present: present.clone(), ..Members::default() };
        let many = members(FULL);
        assert_eq!(sizes_by_members(&vec![with(&many); 7], 3), [3, 3, 1]);
        let own: Vec<_> = (0..4).map(|_| with(&members(FULL / 2))).collect();
        assert_eq!(sizes_by_members(&own, 100), [2, 2]);
        assert_eq!(sizes_by_members(&[with(&members(FULL + 1)), with(&many)], 100), [1, 1]);
        assert_eq!(sizes_by_members(&[], 3), [0; 0]);
        let absent = Members { absent: members(FULL), ..Members::default() };
        assert_eq!(sizes_by_members(&[absent.clone(), absent], 100), [1, 1]);
    }

    #[test]
    fn a_large_one_takes_no_others_with_it() {
        let items = [100, MAX_PART, 100, 200, MAX_PART / 2, MAX_PART / 2, 3 * MAX_PART, 100];
        assert_eq!(sizes(&items, 100, |_| None, |size| *size), [1, 1, 3, 1, 1, 1]);
    }
}
