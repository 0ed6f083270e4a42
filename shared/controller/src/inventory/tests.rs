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

fn snapshot(instances: impl IntoIterator<Item = Instance>) -> Snapshot {
    Snapshot::of_list(instances.into_iter().collect())
}

fn found(result: Result<Option<&Known>, Ambiguous>) -> Option<String> {
    result.unwrap().map(|known| known.instance.provider_id.to_string())
}

#[test]
fn every_spelling_finds_the_instance() {
    let snapshot = snapshot([
        instance("os:///1", "one", &["os://region/1", "os:///1"]),
        instance("os:///2", "two", &["os://region/2"]),
    ]);
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
        assert_eq!(found(snapshot.get(text)).as_deref(), expect, "{text:?}");
    }
    assert_eq!(found(snapshot.by_name("two")).as_deref(), Some("os:///2"));
    assert_eq!(found(snapshot.by_name("tw")), None);
}

#[test]
fn ambiguous_matches_are_an_error() {
    let all = [
        instance("sim://a", "twin", &["sim://old"]),
        instance("sim://b", "twin", &["sim://old", "sim://a"]),
        instance("sim://c", "", &[]),
        instance("sim://d", "", &[]),
    ];
    let inventory = Inventory::new();
    inventory.update(all.clone(), Instant::now());
    let snapshot = snapshot(all);
    assert_eq!(found(snapshot.get("sim://b")).as_deref(), Some("sim://b"));
    let error = snapshot.get("sim://old").unwrap_err();
    assert_eq!(error.claimed_by, [id("sim://a"), id("sim://b")]);
    assert_eq!(
        error.to_string(),
        r#"provider ID "sim://old" is used by 2 instances of the cloud: sim://a, sim://b"#
    );
    assert!(snapshot.get("sim://a").is_err(), "one's own ID is claimed by another");
    assert!(inventory.get("sim://a").is_none());
    assert_eq!(inventory.found(&id("sim://a")).unwrap().provider_id, id("sim://a"));
    assert_eq!(snapshot.by_name("twin").unwrap_err().what, "instance name");
    assert_eq!(found(snapshot.by_name("")), None, "no name is no claim");
}

#[test]
fn entries_repeated_by_the_cloud_count_once_unless_they_differ() {
    let a = instance("sim://a", "a", &[]);
    let renamed = instance("sim://a", "b", &[]);
    let same = snapshot([a.clone(), a.clone()]);
    assert_eq!((same.len(), found(same.get("sim://a")).as_deref()), (1, Some("sim://a")));
    assert!(snapshot([a, renamed]).get("sim://a").is_err());
}

#[test]
fn pruning_keeps_the_order_of_the_other_instances() {
    let (inventory, at) = (Inventory::new(), Instant::now());
    inventory.update([instance("sim://a", "a", &[]), instance("sim://b", "b", &[])], at);
    let kept = inventory.get("sim://b").unwrap().instance;
    inventory.prune(|instance| instance.name == "b");
    assert!(inventory.get("sim://a").is_none());
    assert!(Arc::ptr_eq(&kept, &inventory.get("sim://b").unwrap().instance));
}

#[test]
fn the_newer_of_two_lookups_counts() {
    let inventory = Inventory::new();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let (old, new) =
        (instance("sim://a", "old", &[]), instance("sim://a", "new", &["sim://other"]));
    let update = |instance: &Instance, at| {
        inventory.update([instance.clone()], at);
        let known = inventory.get("sim://a").unwrap();
        (known.instance.name.clone(), known.seen)
    };
    assert_eq!(update(&old, at(0)), ("old".to_owned(), at(0)));
    assert_eq!(update(&new, at(10)), ("new".to_owned(), at(10)));
    let kept = inventory.get("sim://a").unwrap().instance;
    assert_eq!(update(&new, at(11)), ("new".to_owned(), at(11)), "seen again");
    assert!(Arc::ptr_eq(&kept, &inventory.get("sim://other").unwrap().instance));
    assert_eq!(update(&old, at(9)), ("new".to_owned(), at(11)), "an answer that was overtaken");
    inventory.update([instance("sim://b", "b", &[]), old], at(12));
    assert_eq!(
        (inventory.len(), inventory.get("sim://a").unwrap().instance.name.as_str()),
        (2, "old")
    );
}

#[tokio::test(start_paused = true)]
async fn the_age_is_that_of_the_last_refresh() {
    let inventory = Inventory::new();
    let metrics = Metrics::new();
    inventory.register(&metrics);
    assert_eq!(inventory.age(), None);
    assert!(!metrics.encode().unwrap().contains("ccm_inventory_age_seconds"));
    let asked = Instant::now();
    inventory.update([instance("sim://a", "a", &[])], asked);
    assert_eq!(inventory.age(), None, "a lookup of some nodes");
    inventory.refreshed(asked);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(inventory.age(), Some(Duration::from_secs(5)));
    let text = metrics.encode().unwrap();
    for line in ["ccm_inventory_instances 1.0", "ccm_inventory_age_seconds 5.0"] {
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
    let claiming = snapshot.entries.iter().filter(|known| claims(&known.instance));
    claiming.map(|known| known.instance.provider_id.to_string()).collect()
}

fn answered(result: Result<Option<&Known>, Ambiguous>) -> Vec<String> {
    match result {
        Ok(found) => found.iter().map(|known| known.instance.provider_id.to_string()).collect(),
        Err(error) => error.claimed_by.iter().map(ToString::to_string).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_index_equals_a_linear_search(list in prop::collection::vec(any_instance(), 0..12)) {
        let snapshot = snapshot(list);
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
