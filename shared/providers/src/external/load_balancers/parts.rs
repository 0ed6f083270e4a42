//! How large calls are split into messages.

use std::collections::HashSet;

use ccm_cloud::{Member, Members};

/// The most members in one message: some 4 MiB.
const MOST_MEMBERS: usize = 20_000;

/// Splits the items of a call into those of its messages. A list of members that several items
/// share counts once.
pub(super) fn split<'i, 'a, T>(
    items: &'i [(usize, &'a T)],
    most: usize,
    members: impl Fn(&'a T) -> Option<&'a Members>,
) -> Vec<&'i [(usize, &'a T)]> {
    let (mut parts, mut begin, mut count) = (Vec::new(), 0, 0);
    let mut lists = HashSet::new();
    for (at, (_, item)) in items.iter().enumerate() {
        let more = |lists: &mut HashSet<*const Member>| {
            members(item).map_or(0, |members| {
                let is_new = lists.insert(members.present.as_ptr());
                members.absent.len() + if is_new { members.present.len() } else { 0 }
            })
        };
        let own = more(&mut lists);
        if at > begin && (at - begin == most || count + own > MOST_MEMBERS) {
            parts.push(&items[begin..at]);
            lists.clear();
            (begin, count) = (at, more(&mut lists));
        } else {
            count += own;
        }
    }
    if begin < items.len() {
        parts.push(&items[begin..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn members(count: usize) -> Arc<[Member]> {
        let one = |number| Member {
            node: format!("n{number}"),
            provider_id: None,
            addresses: Vec::new(),
            labels: Arc::default(),
        };
        (0..count).map(one).collect()
    }

    fn sizes(items: &[Members], most: usize) -> Vec<usize> {
        let items: Vec<_> = items.iter().enumerate().collect();
        split(&items, most, Some).iter().map(|part| part.len()).collect()
    }

    #[test]
    fn a_list_that_load_balancers_share_counts_once_in_a_message() {
        let with =
            |present: &Arc<[Member]>| Members { present: present.clone(), ..Members::default() };
        let many = members(MOST_MEMBERS);
        assert_eq!(sizes(&vec![with(&many); 7], 3), [3, 3, 1]);
        let own: Vec<_> = (0..4).map(|_| with(&members(MOST_MEMBERS / 2))).collect();
        assert_eq!(sizes(&own, 100), [2, 2]);
        assert_eq!(sizes(&[with(&members(MOST_MEMBERS + 1)), with(&many)], 100), [1, 1]);
        assert_eq!(sizes(&[], 3), [0; 0]);
        let absent = Members { absent: members(MOST_MEMBERS), ..Members::default() };
        assert_eq!(sizes(&[absent.clone(), absent], 100), [1, 1]);
    }
}
