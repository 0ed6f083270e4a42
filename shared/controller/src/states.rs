//! The state of each object of a controller, by its key, and how many objects are in each.

use std::collections::HashMap;

use ccm_objects::Shared as Name;
use parking_lot::Mutex;

/// The states of objects.
pub struct States<S> {
    states: Mutex<HashMap<Name, S>>,
    count: Box<dyn Fn(S, i64) + Send + Sync>,
}

impl<S: Copy> States<S> {
    /// No object yet. `count` hears that this number of objects has entered a state, or left it if
    /// negative.
    pub fn new(count: impl Fn(S, i64) + Send + Sync + 'static) -> Self {
        Self { states: Mutex::default(), count: Box::new(count) }
    }

    /// The object is in this state now.
    pub fn set(&self, name: &Name, state: S) {
        let old = self.states.lock().insert(Name::clone(name), state);
        (self.count)(state, 1);
        if let Some(old) = old {
            (self.count)(old, -1);
        }
    }

    /// The state of the object, if it is known.
    pub fn get(&self, name: &str) -> Option<S> {
        self.states.lock().get(name).copied()
    }

    /// The objects in such a state.
    pub fn those(&self, is_such: impl Fn(S) -> bool) -> Vec<Name> {
        let states = self.states.lock();
        let those = states.iter().filter(|(_, state)| is_such(**state));
        those.map(|(name, _)| Name::clone(name)).collect()
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, name: &str) {
        let old = self.states.lock().remove(name);
        if let Some(old) = old {
            (self.count)(old, -1);
        }
    }

    /// Forgets objects whose state was set when they were gone already.
    pub fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.states.lock().retain(|name, state| {
            let stays = exists(name);
            if !stays {
                (self.count)(*state, -1);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;

    /// States as letters, and how many objects are in each.
    fn states() -> (States<char>, impl Fn() -> String) {
        let counts: Arc<Mutex<BTreeMap<char, i64>>> = Arc::default();
        let shown = Arc::clone(&counts);
        let states = States::new(move |state, by| *counts.lock().entry(state).or_default() += by);
        let text = move || {
            let counts = shown.lock();
            let present = counts.iter().filter(|(_, count)| **count != 0);
            present.map(|(state, count)| format!("{state}{count}")).collect::<Vec<_>>().concat()
        };
        (states, text)
    }

    #[test]
    fn each_object_counts_in_its_last_state_until_it_is_gone() {
        let (states, counts) = states();
        states.set(&"one".into(), 'p');
        states.set(&"two".into(), 'p');
        assert_eq!(counts(), "p2");
        states.set(&"one".into(), 'w');
        assert_eq!((counts(), states.get("one")), ("p1w1".to_owned(), Some('w')));
        assert_eq!(states.those(|state| state == 'w'), ["one".into()]);
        states.forget("two");
        states.forget("two");
        assert_eq!((counts(), states.get("two")), ("w1".to_owned(), None));
    }

    /// A controller walks over the objects that it has listed, and one of them goes meanwhile.
    #[test]
    fn an_object_that_is_recorded_when_it_is_gone_is_forgotten_later() {
        let (states, counts) = states();
        states.set(&"one".into(), 'i');
        states.forget("one");
        states.set(&"one".into(), 'i');
        states.set(&"two".into(), 'i');
        assert_eq!(counts(), "i2");
        states.retain(|name| name == "two");
        assert_eq!((counts(), states.get("one")), ("i1".to_owned(), None));
    }
}
