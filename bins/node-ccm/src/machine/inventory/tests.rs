use proptest::prelude::*;

use super::*;

fn id(text: &str) -> ProviderId {
    ProviderId::parse(text).unwrap()
}

/// Returns `sim://1` with this name and these other IDs.
fn instance(main: &str, name: &str, others: &[&str]) -> Instance {
    Instance {
        other_ids: others.iter().map(|other| id(other)).collect(),
        ..Instance::new(id(main), name)
    }
}

fn snapshot(instances: impl IntoIterator<Item = Instance>) -> SortedInstances {
    let known = |instance| KnownInstance { instance: Arc::new(instance), seen: At::default() };
    SortedInstances::new(instances.into_iter().map(known).collect())
}

fn found(known: Option<&KnownInstance>) -> Option<String> {
    known.map(|known| known.instance.provider_id.to_string())
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
}

#[test]
fn of_several_instances_with_one_id_none_is_found() {
    let all = [
        instance("sim://a", "twin", &["sim://old"]),
        instance("sim://b", "twin", &["sim://old", "sim://a"]),
    ];
    let mut inventory = Inventory::default();
    inventory.update(all.clone(), At::default());
    let snapshot = snapshot(all);
    assert_eq!(found(snapshot.get("sim://b")).as_deref(), Some("sim://b"));
    assert_eq!(found(snapshot.get("sim://old")), None);
    assert_eq!(found(snapshot.get("sim://a")), None, "one's own ID is claimed by another");
    assert!(inventory.get("sim://a").is_none());
    assert_eq!(inventory.found(&id("sim://a")).unwrap().instance.provider_id, id("sim://a"));
}

#[test]
fn pruning_keeps_the_order_of_the_other_instances() {
    let (mut inventory, at) = (Inventory::default(), At::default());
    inventory.update([instance("sim://a", "a", &[]), instance("sim://b", "b", &[])], at);
    let kept = Arc::clone(&inventory.get("sim://b").unwrap().instance);
    inventory.prune(|instance| instance.name == "b");
    assert!(inventory.get("sim://a").is_none());
    assert!(Arc::ptr_eq(&kept, &inventory.get("sim://b").unwrap().instance));
}

#[test]
fn the_newer_of_two_lookups_counts() {
    let mut inventory = Inventory::default();
    let start = At::default();
    let at = |seconds| start + Duration::from_secs(seconds);
    let (old, new) =
        (instance("sim://a", "old", &[]), instance("sim://a", "new", &["sim://other"]));
    let update = |inventory: &mut Inventory, instance: &Instance, at| {
        inventory.update([instance.clone()], at);
        let known = inventory.get("sim://a").unwrap();
        (known.instance.name.clone(), known.seen)
    };
    assert_eq!(update(&mut inventory, &old, at(0)), ("old".to_owned(), at(0)));
    assert_eq!(update(&mut inventory, &new, at(10)), ("new".to_owned(), at(10)));
    let kept = Arc::clone(&inventory.get("sim://a").unwrap().instance);
    assert_eq!(update(&mut inventory, &new, at(11)), ("new".to_owned(), at(11)), "seen again");
    assert!(Arc::ptr_eq(&kept, &inventory.get("sim://other").unwrap().instance));
    assert_eq!(
        update(&mut inventory, &old, at(9)),
        ("new".to_owned(), at(11)),
        "an answer that was overtaken"
    );
    inventory.update([instance("sim://b", "b", &[]), old], at(12));
    assert_eq!(
        (inventory.len(), inventory.get("sim://a").unwrap().instance.name.as_str()),
        (2, "old")
    );
}

#[test]
fn the_age_is_of_the_last_refresh() {
    let mut inventory = Inventory::default();
    let at = |seconds| At(Duration::from_secs(seconds));
    inventory.update([instance("sim://a", "a", &[])], at(0));
    assert_eq!(inventory.age(at(0)), None, "a lookup of some nodes");
    inventory.refreshed(at(0));
    assert_eq!(inventory.age(at(5)), Some(Duration::from_secs(5)));
}

fn any_instance() -> impl Strategy<Value = Instance> {
    let others = prop::collection::vec(0..8_u8, 0..3);
    (0..6_u8, others).prop_map(|(main, others)| {
        let others: Vec<String> = others.iter().map(|other| format!("sim://{other}")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        instance(&format!("sim://{main}"), "name", &others)
    })
}

/// Returns the instances that claim this text, by a linear search.
fn claims(snapshot: &SortedInstances, claims: impl Fn(&Instance) -> bool) -> Vec<String> {
    let claiming = snapshot.entries.iter().filter(|known| claims(&known.instance));
    claiming.map(|known| known.instance.provider_id.to_string()).collect()
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
            let found = snapshot.ids.find(&snapshot.entries, &text);
            let found: Vec<_> = found.map(|known| known.instance.provider_id.to_string()).collect();
            prop_assert_eq!(found, expect);
        }
    }
}
