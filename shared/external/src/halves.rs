//! Sends items again in halves if the provider has refused a request as a whole: one bad item must
//! not fail the others.

use ccm_cloud::{CloudError, ErrorKind};

/// The maximum number of requests of one call that a provider may refuse. One bad item among a
/// hundred costs eight refusals. If every item is bad, the next call sends the remaining items
/// again, without those that are known to be bad.
const MAX_REFUSED: usize = 32;

/// The items of a call that are still to be sent, by their places.
pub struct Halves {
    waiting: Vec<Vec<usize>>,
    refused: usize,
}

impl Halves {
    /// Returns all items of a call, as one request.
    pub fn new(items: usize) -> Self {
        let all: Vec<usize> = (0..items).collect();
        Self { waiting: if all.is_empty() { Vec::new() } else { vec![all] }, refused: 0 }
    }

    /// Returns the items of the next request.
    pub fn next(&mut self) -> Option<Vec<usize>> {
        self.waiting.pop()
    }

    /// Records that a request has ended with this error, and these items have no answer. Returns
    /// the items that get an error, with the error.
    pub fn failed(&mut self, left: Vec<usize>, error: CloudError) -> Vec<(usize, CloudError)> {
        let is_refusal = matches!(error.kind, ErrorKind::Invalid | ErrorKind::Unsupported);
        self.refused += usize::from(is_refusal && !left.is_empty());
        let mut ended = Vec::new();
        match left.len() {
            2.. if is_refusal => {
                let (first, second) = left.split_at(left.len() / 2);
                self.waiting.extend([second.to_vec(), first.to_vec()]);
            }
            _ => ended.extend(left.into_iter().map(|place| (place, error.clone()))),
        }
        if self.refused >= MAX_REFUSED {
            let what =
                format!("not sent: the provider has refused {MAX_REFUSED} requests: {error}");
            let unsent = CloudError::new(ErrorKind::Timeout, what).that_was_not_sent();
            let rest = self.waiting.drain(..).flatten();
            ended.extend(rest.map(|place| (place, unsent.clone())));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends items to a provider that refuses requests with a bad one. Returns the items that got
    /// an error, the items that got no answer because they were not sent, and the number of
    /// requests.
    fn sent(items: usize, is_bad: impl Fn(usize) -> bool) -> (Vec<usize>, Vec<usize>, usize) {
        let (mut halves, mut requests) = (Halves::new(items), 0);
        let (mut bad, mut unsent) = (Vec::new(), Vec::new());
        while let Some(places) = halves.next() {
            requests += 1;
            if !places.iter().any(|place| is_bad(*place)) {
                continue;
            }
            for (place, error) in halves.failed(places, CloudError::new(ErrorKind::Invalid, "no")) {
                if error.unsent { unsent.push(place) } else { bad.push(place) }
            }
        }
        (bad, unsent, requests)
    }

    #[test]
    fn bad_items_fail_alone() {
        assert_eq!(sent(0, |_| true), (vec![], vec![], 0));
        assert_eq!(sent(1, |_| true), (vec![0], vec![], 1));
        for bad in 0..100 {
            let (failed, unsent, requests) = sent(100, |place| place == bad);
            assert_eq!((failed, unsent), (vec![bad], vec![]));
            assert!(requests <= 16, "{requests} requests");
        }
        let (failed, unsent, _) = sent(100, |place| place % 40 == 3);
        assert_eq!((failed, unsent), (vec![3, 43, 83], vec![]));
    }

    #[test]
    fn a_provider_that_refuses_everything_is_not_asked_about_each_item_at_once() {
        let (failed, unsent, requests) = sent(100, |_| true);
        assert_eq!((requests, failed.len() + unsent.len()), (MAX_REFUSED, 100));
        assert!(failed.len() > 10, "the next call has fewer: {failed:?}");
    }

    #[test]
    fn other_errors_are_those_of_all_items() {
        let mut halves = Halves::new(3);
        let places = halves.next().expect("a request");
        let ended = halves.failed(places, CloudError::new(ErrorKind::Unavailable, "down"));
        assert_eq!((ended.len(), halves.next()), (3, None));
    }
}
