//! The data that a leader leaves to the next one, as JSON in an annotation of the Lease: used for
//! budgets that a change of leader must not renew.

use ccm_runtime::leadership::{HANDOVER, LeaseAnnotations};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

use crate::brake::Window;

/// Returns the data that the last leader left, or the default if nothing can be read.
pub fn found<T: DeserializeOwned + Default>(lease: &LeaseAnnotations) -> T {
    let text = lease.found();
    if text.is_empty() {
        return T::default();
    }
    serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::warn!("annotation {HANDOVER} of the Lease is ignored: {error}");
        T::default()
    })
}

/// A value that can be shortened without giving the next leader more budget.
pub trait Shorten {
    /// Removes details. Returns false if it cannot.
    fn shorten(&mut self) -> bool;
}

impl Shorten for Window {
    fn shorten(&mut self) -> bool {
        self.sum_up()
    }
}

/// Leaves this value to the next leader, shortened until it fits into the Lease. A default value is
/// not stored.
pub fn keep<T>(lease: &LeaseAnnotations, value: &T)
where
    T: Serialize + Default + PartialEq + Clone + Shorten + Send + Sync + 'static,
{
    if *value == T::default() {
        lease.leave(String::new);
        return;
    }
    let mut value = value.clone();
    loop {
        let text = match serde_json::to_string(&value) {
            Ok(text) => text,
            Err(error) => return tracing::warn!("cannot leave data to the next leader: {error}"),
        };
        let (length, left) = (text.len(), value.clone());
        // A text that could be made once can be made again.
        if lease.leave(move || serde_json::to_string(&left).unwrap_or_else(|_| text.clone())) {
            return;
        }
        if !value.shorten() {
            return tracing::warn!(
                "the data is too long to be left to the next leader: {length} bytes"
            );
        }
    }
}

/// A handover in parts, each kept up to date by its own task.
#[derive(Debug)]
pub struct Handover<T> {
    lease: LeaseAnnotations,
    left: Mutex<T>,
}

impl<T> Handover<T>
where
    T: Serialize + DeserializeOwned + Default + PartialEq + Clone + Shorten + Send + Sync + 'static,
{
    /// Begins with what the last leader has left.
    pub fn take_over(lease: &LeaseAnnotations) -> (Self, T) {
        let left: T = found(lease);
        (Self { lease: lease.clone(), left: Mutex::new(left.clone()) }, left)
    }

    /// Changes a part.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        let mut left = self.left.lock();
        let before = left.clone();
        change(&mut left);
        if *left != before {
            keep(&self.lease, &*left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ccm_base::At;

    use super::*;
    use crate::brake::{Brake, Budget, Hold, Limit};

    /// A budget that many changes have used up stays used up, although not all of them are handed over.
    #[test]
    fn a_budget_that_is_used_up_by_many_stays_used_up() {
        let at = |seconds| At(Duration::from_secs(seconds));
        let change = |number: u64| (at(number), format!("{number:036}").into_boxed_str());
        let window: Window = (0..5000).map(change).collect();
        let lease = LeaseAnnotations::default();
        keep(&lease, &window);
        let left: Window = found(&lease.handed_over());
        let names = left.after(at(0)).count();
        assert!((600..5000).contains(&names), "{names} are named");
        let budget = Budget { limit: Limit::Count(5000), window: Duration::from_hours(2) };
        let mut brake = Brake::<()>::resume(at(5000), left);
        assert_eq!(brake.usage(at(5000), 9999, budget).used, 5000);
        let until = match brake.request(at(5000), "another", 9999, budget) {
            Err(Hold::Budget { until }) => until,
            other => panic!("{other:?}"),
        };
        assert!(until >= Some(at(7200)), "{until:?}");
        // The next leader but one sees the same.
        keep(&lease, brake.window());
        let left: Window = found(&lease.handed_over());
        assert_eq!(Brake::<()>::resume(at(5000), left).usage(at(5000), 9999, budget).used, 5000);
    }
}
