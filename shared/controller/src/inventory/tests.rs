use std::collections::{BTreeMap, BTreeSet};

use ccm_cloud::PowerState;
use proptest::prelude::*;

use super::*;

fn id(text: &str) -> ProviderId {
    ProviderId::parse(text).unwrap()
}

/// `sim://1` with this name and these other IDs.
fn instance(main: &str, name: &str, others: &[&str]) -> Instance {
    Instance {
        other_ids: others.iter().map(|other| id(other)).collect(),
        ..Instance::new(id(main), name)
    }
}

fn fleet(instances: impl IntoIterator<Item = Instance>) -> Fleet {
    Fleet { instances: instances.into_iter().collect(), malformed: Vec::new() }
}

fn ids(instances: &[Arc<Instance>]) -> Vec<&str> {
    instances.iter().map(|instance| instance.provider_id.as_str()).collect()
}

fn found(result: Result<Option<Arc<Instance>>, Ambiguous>) -> Option<String> {
    result.unwrap().map(|instance| instance.provider_id.to_string())
}

#[test]
fn a_list_returns_new_changed_and_missing_instances() {
    let inventory = Inventory::new();
    let at = Instant::now();
    let (a, b, c) = (
        instance("sim://a", "a", &[]),
        instance("sim://b", "b", &[]),
        instance("sim://c", "c", &[]),
    );
    let changes = inventory.apply(fleet([b.clone(), a.clone()]), at);
    assert_eq!(ids(&changes.new), ["sim://a", "sim://b"]);
    assert!(changes.changed.is_empty() && changes.missing.is_empty());

    let kept = inventory.get("sim://a").unwrap().unwrap();
    let stopped = Instance { power: PowerState::Stopped, ..b.clone() };
    let changes = inventory.apply(fleet([a.clone(), stopped.clone(), c.clone()]), at);
    assert_eq!((ids(&changes.new), ids(&changes.changed)), (vec!["sim://c"], vec!["sim://b"]));
    assert_eq!(changes.changed[0].power, PowerState::Stopped);
    assert!(
        Arc::ptr_eq(&kept, &inventory.get("sim://a").unwrap().unwrap()),
        "what is the same keeps its memory"
    );

    let changes = inventory.apply(fleet([stopped.clone(), c.clone(), a.clone()]), at);
    assert!(changes.is_empty(), "the order of a list says nothing");

    let changes = inventory.apply(Fleet { instances: vec![a], malformed: vec!["?".into()] }, at);
    assert_eq!(ids(&changes.missing), ["sim://b", "sim://c"]);
    assert_eq!(found(inventory.get("sim://b")), None);
    assert_eq!(inventory.snapshot().malformed(), 1);
}

#[test]
fn every_spelling_finds_the_instance() {
    let inventory = Inventory::new();
    inventory.apply(
        fleet([
            instance("os:///1", "one", &["os://region/1", "os:///1"]),
            instance("os:///2", "two", &["os://region/2"]),
        ]),
        Instant::now(),
    );
    for (text, expect) in [
        ("os:///1", Some("os:///1")),
        ("os://region/1", Some("os:///1")),
        ("os:///2", Some("os:///2")),
        ("os://region/2", Some("os:///2")),
        ("os:///", None),
        ("os:///10", None),
        ("os://region/", None),
        ("", None),
        ("zzz", None),
        ("one", None),
    ] {
        assert_eq!(found(inventory.get(text)).as_deref(), expect, "{text:?}");
    }
    assert_eq!(found(inventory.snapshot().by_name("two")).as_deref(), Some("os:///2"));
    assert_eq!(found(inventory.snapshot().by_name("tw")), None);
}

#[test]
fn ambiguous_matches_are_an_error() {
    let inventory = Inventory::new();
    inventory.apply(
        fleet([
            instance("sim://a", "twin", &["sim://old"]),
            instance("sim://b", "twin", &["sim://old", "sim://a"]),
            instance("sim://c", "", &[]),
            instance("sim://d", "", &[]),
        ]),
        Instant::now(),
    );
    assert_eq!(found(inventory.get("sim://b")).as_deref(), Some("sim://b"));
    let error = inventory.get("sim://old").unwrap_err();
    assert_eq!(error.claimed_by, [id("sim://a"), id("sim://b")]);
    assert_eq!(
        error.to_string(),
        r#"provider ID "sim://old" is used by 2 entries of the cloud's list: sim://a, sim://b"#
    );
    assert!(inventory.get("sim://a").is_err(), "one's own ID is claimed by another");
    assert_eq!(inventory.snapshot().by_name("twin").unwrap_err().what, "instance name");
    assert_eq!(found(inventory.snapshot().by_name("")), None, "no name is no claim");
}

#[test]
fn entries_repeated_by_the_cloud_count_once_unless_they_differ() {
    let inventory = Inventory::new();
    let at = Instant::now();
    let a = instance("sim://a", "a", &[]);
    let renamed = instance("sim://a", "b", &[]);
    inventory.apply(fleet([a.clone(), a.clone()]), at);
    assert_eq!(
        (inventory.snapshot().len(), found(inventory.get("sim://a")).as_deref()),
        (1, Some("sim://a"))
    );

    let changes = inventory.apply(fleet([a.clone(), renamed.clone()]), at);
    assert_eq!(ids(&changes.changed), ["sim://a", "sim://a"]);
    assert!(inventory.get("sim://a").is_err());
    assert!(inventory.apply(fleet([a.clone(), renamed]), at).is_empty());

    let changes = inventory.apply(fleet([a]), at);
    assert_eq!(ids(&changes.changed), ["sim://a"]);
    assert!(inventory.get("sim://a").is_ok());
}

#[test]
fn pruning_keeps_the_order_of_the_other_instances() {
    let (inventory, at) = (Inventory::new(), Instant::now());
    inventory.update([instance("sim://a", "a", &[]), instance("sim://b", "b", &[])], at);
    let kept = inventory.get("sim://b").unwrap().unwrap();
    inventory.prune(|instance| instance.name == "b");
    assert_eq!(found(inventory.get("sim://a")), None);
    assert!(Arc::ptr_eq(&kept, &inventory.get("sim://b").unwrap().unwrap()));
    assert_eq!(inventory.snapshot().listed(), None, "that was no list");
}

#[test]
fn a_lookup_is_newer_than_a_list_requested_before_it() {
    let inventory = Inventory::new();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let (old, new) =
        (instance("sim://a", "old", &[]), instance("sim://a", "new", &["sim://other"]));
    inventory.apply(fleet([old.clone()]), at(0));
    let update = |instance: &Instance, at| !inventory.update([instance.clone()], at).is_empty();
    assert!(update(&new, at(10)));
    assert!(!update(&new, at(11)), "nothing new");
    assert!(!update(&old, at(9)), "an answer that was overtaken");
    assert_eq!(inventory.snapshot().by_name("new").unwrap().as_deref(), Some(&new));
    assert_eq!(found(inventory.get("sim://other")).as_deref(), Some("sim://a"));
    assert_eq!(inventory.snapshot().listed(), Some(at(0)), "a lookup is no list");

    let born = instance("sim://b", "b", &[]);
    assert_eq!(ids(&inventory.update([born.clone(), new.clone()], at(12))), ["sim://b"]);
    assert!(!update(&new, at(3)), "nothing new, and no news");
    let changes = inventory.apply(fleet([old.clone()]), at(5));
    assert!(changes.is_empty(), "a list that was asked for before knows less: {changes:?}");
    assert_eq!(inventory.snapshot().len(), 2);

    let changes = inventory.apply(fleet([old]), at(20));
    assert_eq!((ids(&changes.changed), ids(&changes.missing)), (vec!["sim://a"], vec!["sim://b"]));
}

#[tokio::test(start_paused = true)]
async fn the_age_is_that_of_the_last_list() {
    let inventory = Inventory::new();
    let metrics = Metrics::new();
    inventory.register(&metrics);
    assert_eq!(inventory.age(), None);
    assert!(!metrics.encode().unwrap().contains("ccm_inventory_age_seconds"));
    let asked = Instant::now();
    tokio::time::advance(Duration::from_secs(2)).await;
    inventory.apply(
        Fleet { instances: vec![instance("sim://a", "a", &[])], malformed: vec!["x".into()] },
        asked,
    );
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(inventory.age(), Some(Duration::from_secs(5)));
    let text = metrics.encode().unwrap();
    for line in [
        "ccm_inventory_instances 1.0",
        "ccm_inventory_malformed 1.0",
        "ccm_inventory_age_seconds 5.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

fn any_instance() -> impl Strategy<Value = Instance> {
    let others = prop::collection::vec(0..8_u8, 0..3);
    (0..6_u8, others, 0..4_u8).prop_map(|(main, others, name)| {
        let others: Vec<String> = others.iter().map(|other| format!("sim://{other}")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let name = if name == 0 { String::new() } else { format!("n{name}") };
        instance(&format!("sim://{main}"), &name, &others)
    })
}

/// The instances that claim this text, by a linear search.
fn claims(snapshot: &Snapshot, claims: impl Fn(&Instance) -> bool) -> Vec<String> {
    let claiming = snapshot.instances().filter(|instance| claims(instance));
    claiming.map(|instance| instance.provider_id.to_string()).collect()
}

fn answered(result: Result<Option<Arc<Instance>>, Ambiguous>) -> Vec<String> {
    match result {
        Ok(found) => found.iter().map(|instance| instance.provider_id.to_string()).collect(),
        Err(error) => error.claimed_by.iter().map(ToString::to_string).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn lookups_and_changes_equal_those_of_a_linear_search(
        lists in prop::collection::vec(prop::collection::vec(any_instance(), 0..8), 1..5),
    ) {
        let inventory = Inventory::new();
        let at = Instant::now();
        let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for list in lists {
            let mut next: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for instance in &list {
                next.entry(instance.provider_id.to_string()).or_default().insert(format!("{instance:?}"));
            }
            let changes = inventory.apply(fleet(list), at);
            let set = |list: &[Arc<Instance>]| list.iter().map(|one| one.provider_id.to_string()).collect::<BTreeSet<_>>();
            let keys = |map: &BTreeMap<String, BTreeSet<String>>, other: &BTreeMap<String, BTreeSet<String>>| {
                map.keys().filter(|key| !other.contains_key(*key)).cloned().collect::<BTreeSet<_>>()
            };
            prop_assert_eq!(set(&changes.new), keys(&next, &known));
            prop_assert_eq!(set(&changes.missing), keys(&known, &next));
            // Contradicting entries may count as changed when only their order changed.
            for (key, is) in &next {
                let Some(was) = known.get(key).filter(|was| *was != is || was.len() == 1) else { continue };
                prop_assert_eq!(set(&changes.changed).contains(key), was != is);
            }
            known = next;

            let snapshot = inventory.snapshot();
            for n in 0..9 {
                let text = format!("sim://{n}");
                let expect = claims(&snapshot, |one| {
                    one.provider_id.as_str() == text || one.other_ids.iter().any(|other| other.as_str() == text)
                });
                prop_assert_eq!(answered(snapshot.get(&text)), expect);
                let name = format!("n{n}");
                prop_assert_eq!(answered(snapshot.by_name(&name)), claims(&snapshot, |one| one.name == name));
            }
        }
    }
}
