//! How often the cloud is called.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::rules::{Broken, Rule};

const WINDOW: Duration = Duration::from_mins(10);
/// How often a process may ask for a change of one route in the window: after failures with back-off, and again after
/// each change of its node; and how often it may list the table.
const MOST: usize = 120;

/// The calls of one process, by destination; those that list are under the network of all addresses.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<BTreeMap<IpNet, VecDeque<Instant>>>>);

impl Calls {
    pub(crate) fn count(&self, broken: &Broken, destinations: impl Iterator<Item = IpNet>) {
        let now = Instant::now();
        for destination in destinations {
            let mut calls = self.0.lock();
            let times = calls.entry(destination).or_default();
            times.push_back(now);
            while times.front().is_some_and(|first| *first + WINDOW < now) {
                times.pop_front();
            }
            let count = times.len();
            if count > MOST {
                times.clear();
                broken
                    .add(Rule::Calls, format!("{count} calls about {destination} in ten minutes"));
            }
        }
    }
}
