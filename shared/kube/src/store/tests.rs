//! The choice between two versions, and the reported changes.

use proptest::prelude::*;

use super::*;
use ccm_objects::Node;

fn node(name: &str, uid: &str, version: &str, label: &str) -> Node {
    Node {
        name: name.into(),
        uid: uid.into(),
        resource_version: version.into(),
        labels: [("label".into(), label.into())].into(),
        ..Node::default()
    }
}

/// Returns the first node of this name.
fn first(name: &str, version: u64, label: &str) -> Node {
    node(name, "u-1", &version.to_string(), label)
}

/// Returns a synced store with these nodes.
fn listed(nodes: impl IntoIterator<Item = Node>) -> Store<Node> {
    let store = Store::new();
    relist(&store, nodes);
    store
}

fn relist(store: &Store<Node>, nodes: impl IntoIterator<Item = Node>) -> Vec<String> {
    store.begin_list();
    let mut changes: Vec<_> = nodes.into_iter().flat_map(|node| store.apply_listed(node)).collect();
    changes.extend(store.end_list());
    reported(changes)
}

/// Returns the changes in short: `+` added, `-` deleted, `old>new` updated, with uid and label.
fn reported(changes: impl IntoIterator<Item = Change<Node>>) -> Vec<String> {
    let short = |node: &Node| format!("{}/{}:{}", node.name, node.uid, node.labels["label"]);
    let reported = changes.into_iter().map(|change| match change {
        Change::Added(node) => format!("+{}", short(&node)),
        Change::Deleted(node) => format!("-{}", short(&node)),
        Change::Updated { old, new } => format!("{}>{}", short(&old), short(&new)),
    });
    reported.collect()
}

/// Returns the stored object, as version and label.
fn held(store: &Store<Node>, name: &str) -> String {
    let node = store.get(name).unwrap();
    format!("{} {}", node.resource_version, node.labels["label"])
}

#[test]
fn a_store_is_synced_after_its_first_whole_list() {
    let store = Store::new();
    assert!(!store.is_synced() && store.is_empty());
    store.begin_list();
    assert_eq!(reported(store.apply_listed(first("a", 1, "x"))), ["+a/u-1:x"]);
    assert!(!store.is_synced());
    assert_eq!(store.end_list(), []);
    assert!(store.is_synced());
    assert_eq!((store.len(), store.list().len()), (1, 1));
}

#[tokio::test]
async fn who_waits_for_the_first_list_is_woken() {
    let store: Store<Node> = Store::new();
    let other = store.clone();
    let patient = async {
        tokio::time::timeout(std::time::Duration::from_secs(5), store.wait_synced()).await
    };
    let (waited, ()) = tokio::join!(patient, async {
        tokio::task::yield_now().await;
        other.begin_list();
        other.end_list();
    });
    waited.unwrap();
    store.wait_synced().await;
}

#[test]
fn a_list_tells_what_differs_from_the_last_one() {
    let store = listed([first("same", 1, "x"), first("changed", 1, "x"), first("gone", 1, "x")]);
    let reported =
        relist(&store, [first("same", 9, "x"), first("changed", 2, "y"), first("new", 3, "x")]);
    assert_eq!(reported, ["changed/u-1:x>changed/u-1:y", "+new/u-1:x", "-gone/u-1:x"]);
    assert_eq!(held(&store, "same"), "9 x", "the version is refreshed");
}

#[test]
fn a_list_that_breaks_off_deletes_nothing() {
    let store = listed([first("a", 1, "x"), first("b", 1, "x")]);
    store.begin_list();
    assert_eq!(store.apply_listed(first("a", 1, "x")), []);
    let reported = relist(&store, [first("b", 1, "x")]);
    assert_eq!(
        reported,
        ["-a/u-1:x"],
        "only the whole list counts, not what a broken one has shown"
    );
}

#[test]
fn an_update_that_changes_nothing_refreshes_the_version_and_is_not_reported() {
    let store = listed([first("a", 1, "x")]);
    let before = store.get("a").unwrap();
    assert_eq!(store.apply_watched(first("a", 2, "x")), []);
    assert_eq!(held(&store, "a"), "2 x");
    assert_eq!(&*before.resource_version, "1", "who holds the old value keeps it");
    assert_eq!(reported(store.apply_watched(first("a", 3, "y"))), ["a/u-1:x>a/u-1:y"]);
}

#[test]
fn a_node_created_anew_is_deleted_and_added() {
    let store = listed([first("a", 5, "x"), first("b", 5, "x")]);
    let next = |name, version| node(name, "u-2", version, "x");
    assert_eq!(reported(store.apply_watched(next("a", "6"))), ["-a/u-1:x", "+a/u-2:x"]);
    assert_eq!(relist(&store, [next("a", "6"), next("b", "7")]), ["-b/u-1:x", "+b/u-2:x"]);
    assert_eq!(store.remove_watched(&first("a", 6, "x")), None, "the deletion is the old one's");
    assert!(store.get("a").is_some());
}

#[test]
fn a_deletion_tells_what_was_held() {
    let store = listed([first("a", 1, "x")]);
    assert_eq!(reported(store.remove_watched(&first("a", 2, "y"))), ["-a/u-1:x"]);
    assert_eq!(store.remove_watched(&first("a", 2, "y")), None);
    assert!(store.is_empty());
}

#[test]
fn what_was_written_counts_until_something_newer_is_seen() {
    let store = listed([first("a", 5, "x")]);
    store.apply_written(first("a", 99, "mine"));
    assert_eq!(held(&store, "a"), "99 mine");
    store.apply_written(first("a", 98, "late answer"));
    assert_eq!(held(&store, "a"), "99 mine");
    for version in [6, 20, 98] {
        assert_eq!(store.apply_watched(first("a", version, "stale")), []);
        assert_eq!(held(&store, "a"), "99 mine", "never back to {version}");
    }
    assert_eq!(store.apply_watched(first("a", 99, "mine")), [], "we know of our own write");
    // Versions are compared as numbers: as text, 100 would come before 99.
    assert_eq!(
        reported(store.apply_watched(first("a", 100, "theirs"))),
        ["a/u-1:mine>a/u-1:theirs"]
    );
}

#[test]
fn what_was_written_does_not_bring_a_node_back() {
    let store = listed([first("a", 5, "x"), first("b", 5, "x")]);
    store.remove_watched(&first("a", 7, "x"));
    store.apply_written(first("a", 6, "mine"));
    assert!(store.get("a").is_none(), "deleted while the answer was on its way");
    store.apply_watched(node("b", "u-2", "8", "x"));
    store.apply_written(first("b", 9, "mine"));
    assert_eq!(held(&store, "b"), "8 x", "the answer is about the previous one");
}

#[test]
fn a_list_counts_more_than_what_was_held_unless_that_was_written_meanwhile() {
    let store = listed([first("a", 50, "x"), first("b", 50, "x"), first("c", 50, "x")]);
    store.apply_written(first("b", 60, "mine"));
    store.begin_list();
    store.apply_written(first("c", 60, "mine"));
    let mut changes = Vec::new();
    for name in ["a", "b", "c"] {
        changes.extend(store.apply_listed(first(name, 40, "restored")));
    }
    changes.extend(store.end_list());
    let expect = ["a/u-1:x>a/u-1:restored", "b/u-1:mine>b/u-1:restored"];
    assert_eq!(reported(changes), expect, "versions have gone back: a backup was restored");
    assert_eq!(held(&store, "c"), "60 mine", "written while the list was read");
}

#[test]
fn versions_that_are_no_numbers_are_taken_as_they_come() {
    let store = listed([node("a", "u-1", "abc", "x")]);
    assert_eq!(reported(store.apply_watched(node("a", "u-1", "abb", "y"))), ["a/u-1:x>a/u-1:y"]);
    store.apply_written(node("a", "u-1", "abd", "mine"));
    assert_eq!(held(&store, "a"), "abb y", "that it is newer cannot be said");
}

/// One step in the life of a node.
#[derive(Clone, Debug)]
enum Step {
    /// The server has a new version: the watch delivers it at once, or after more steps.
    Write {
        label: u8,
        delayed: bool,
    },
    /// Our own write, whose response arrives before the watch event.
    OwnWrite {
        label: u8,
    },
    /// The watch delivers what was delayed, in order.
    CatchUp,
    /// Everything is listed.
    Relist,
    Recreate,
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, any::<bool>()).prop_map(|(label, delayed)| Step::Write { label, delayed }),
        3 => (0..3u8).prop_map(|label| Step::OwnWrite { label }),
        2 => Just(Step::CatchUp),
        1 => Just(Step::Relist),
        1 => Just(Step::Recreate),
        1 => Just(Step::Delete),
    ]
}

/// A server with one node, a watch that may lag, and the changes reported so far.
#[derive(Default)]
struct World {
    version: u64,
    uid: u64,
    now: Option<Node>,
    // `None` is a deletion.
    lag: Vec<(Node, bool)>,
    reported: Option<Node>,
}

impl World {
    fn next(&mut self, label: u8) -> Node {
        self.version += 1;
        let node = node("a", &self.uid.to_string(), &self.version.to_string(), &label.to_string());
        self.now = Some(node.clone());
        node
    }

    fn report(&mut self, changes: impl IntoIterator<Item = Change<Node>>) {
        for change in changes {
            self.reported = match change {
                Change::Added(node) => {
                    assert!(self.reported.is_none(), "added twice");
                    Some((*node).clone())
                }
                Change::Updated { new, .. } => {
                    assert!(self.reported.is_some(), "updated before it was added");
                    Some((*new).clone())
                }
                Change::Deleted(_) => {
                    assert!(self.reported.is_some(), "deleted but never added");
                    None
                }
            };
        }
    }

    fn catch_up(&mut self, store: &Store<Node>) {
        for (node, deleted) in std::mem::take(&mut self.lag) {
            let before = store.get("a");
            if deleted {
                self.report(store.remove_watched(&node));
            } else {
                self.report(store.apply_watched(node));
            }
            if let (Some(before), Some(after)) = (before, store.get("a"))
                && before.uid == after.uid
            {
                let number = |node: &Node| node.resource_version.parse::<u64>().unwrap();
                assert!(number(&before) <= number(&after), "the store went back");
            }
        }
    }

    fn take(&mut self, store: &Store<Node>, step: &Step) {
        match step {
            Step::Write { label, delayed } => {
                let node = self.next(*label);
                self.lag.push((node, false));
                if !delayed {
                    self.catch_up(store);
                }
            }
            Step::OwnWrite { label } if self.now.is_some() && self.lag.is_empty() => {
                let node = self.next(*label);
                store.apply_written(node.clone());
                if self.reported.is_some() {
                    self.reported = Some(node.clone());
                }
                self.lag.push((node, false));
            }
            Step::OwnWrite { .. } => {}
            Step::CatchUp => self.catch_up(store),
            Step::Relist => {
                self.lag.clear();
                store.begin_list();
                let listed = self.now.clone().map(|node| store.apply_listed(node));
                self.report(listed.into_iter().flatten());
                self.report(store.end_list());
            }
            Step::Recreate | Step::Delete => {
                if let Some(mut node) = self.now.take() {
                    self.version += 1;
                    node.resource_version = self.version.to_string().into();
                    self.lag.push((node, true));
                    self.uid += 1;
                }
                if matches!(step, Step::Recreate) {
                    let node = self.next(0);
                    self.lag.push((node, false));
                }
            }
        }
    }
}

#[test]
fn rules_are_counted_and_an_equal_object_takes_the_new_one() {
    use ccm_objects::{Service, ServiceReading};
    let store: Store<Service> = Store::new();
    let mut rules = store.rules();
    assert_eq!((store.rule().number, store.keep(None)), (0, 0), "it keeps everything so far");
    let reading = ServiceReading { classless: true, ..ServiceReading::default() };
    assert_eq!((store.keep(Some(reading.clone())), store.keep(Some(reading))), (1, 1));
    assert!(rules.has_changed().unwrap());
    rules.mark_unchanged();
    assert_eq!(store.keep(Some(ServiceReading::default())), 2);
    assert!(rules.has_changed().unwrap());
    let service = |rule| Service { key: "a/b".into(), rule, json: None, ..Service::default() };
    for rule in [1, 2] {
        store.begin_list();
        let changes = store.apply_listed(service(rule));
        assert_eq!(changes.len(), usize::from(rule == 1), "an equal object changes nothing");
        assert_eq!(store.get("a/b").unwrap().rule, rule);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Once the watch has caught up, store and listener agree with the server, after any
    /// history.
    #[test]
    fn the_store_and_its_listener_end_up_as_the_server(steps in prop::collection::vec(step(), 0..30)) {
        let (store, mut world) = (listed([]), World::default());
        for step in &steps {
            world.take(&store, step);
        }
        world.catch_up(&store);
        let held = store.get("a").map(|node| (*node).clone());
        prop_assert_eq!(&held, &world.now);
        prop_assert_eq!(held.map(|node| node.resource_version), world.now.map(|node| node.resource_version));
        prop_assert_eq!(&world.reported, &store.get("a").map(|node| (*node).clone()));
    }
}
