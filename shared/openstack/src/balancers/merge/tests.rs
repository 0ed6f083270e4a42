use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_cloud::{AddressKind, NodeAddress};
use proptest::prelude::*;

use super::*;

const PORT: u16 = 30_080;

fn node(number: u8) -> Member {
    let address = NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}"));
    Member {
        node: format!("n{number}"),
        provider_id: None,
        addresses: vec![address],
        labels: Arc::new([("number".to_owned(), number.to_string())].into()),
    }
}

fn nodes(numbers: &[u8]) -> Arc<[Member]> {
    numbers.iter().copied().map(node).collect()
}

fn seen(name: &str, number: u8, port: u16) -> SeenMember {
    SeenMember { name: name.to_owned(), address: [10, 0, 0, number].into(), port, details: None }
}

fn shape(selector: &Selector) -> Shape<'_> {
    Shape { port: PORT, family: IpFamily::V4, selector, subnet: Some("s"), monitor_port: None }
}

/// Returns Octavia's members after a write of these members. Fields that are not named stay.
fn applied(current: &[SeenMember], members: &[Value]) -> Vec<SeenMember> {
    let read = |member: &Value| {
        let address: IpAddr = member["address"].as_str().unwrap().parse().unwrap();
        let port = u16::try_from(member["protocol_port"].as_u64().unwrap()).unwrap();
        let before = current.iter().find(|seen| (seen.address, seen.port) == (address, port));
        let name = member["name"].as_str().unwrap().to_owned();
        SeenMember { name, address, port, details: before.and_then(|seen| seen.details.clone()) }
    };
    members.iter().map(read).collect()
}

/// A pool before and after: members by name, number and port.
type Pool = &'static [(&'static str, u8, u16)];

#[test]
fn members_come_move_and_leave() {
    for (what, current, present, absent, expect) in [
        ("all stay", &[("n1", 1, PORT)][..], &[1][..], &[][..], None::<Pool>),
        (
            "one joins",
            &[("n1", 1, PORT)],
            &[1, 2],
            &[],
            Some(&[("n1", 1, PORT), ("n2", 2, PORT)][..]),
        ),
        ("one leaves", &[("n1", 1, PORT), ("n2", 2, PORT)], &[1], &[2], Some(&[("n1", 1, PORT)])),
        ("in both lists stays", &[("n1", 1, PORT)], &[1], &[1], None),
        ("a foreign member stays", &[("n1", 1, PORT), ("vm", 9, 80)], &[1], &[], None),
        ("the last one stays", &[("n1", 1, PORT)], &[], &[1], None),
        ("moves with its port", &[("n1", 1, 30_001)], &[1], &[], Some(&[("n1", 1, PORT)])),
        (
            "foreign members move too",
            &[("n1", 1, 30_001), ("vm", 9, 30_001), ("vm2", 8, 80)],
            &[1],
            &[],
            Some(&[("n1", 1, PORT), ("vm", 9, PORT), ("vm2", 8, 80)]),
        ),
        ("has another address", &[("n1", 7, PORT)], &[1], &[], Some(&[("n1", 1, PORT)])),
        ("is another node", &[("old", 1, PORT)], &[1], &[], Some(&[("n1", 1, PORT)])),
        ("named by serial mode", &[("member_n1_10.0.0.1_30080", 1, PORT)], &[1], &[], None),
        ("a thin view", &[("n1", 1, PORT), ("n2", 2, PORT)], &[], &[], None),
    ] {
        let current: Vec<_> =
            current.iter().map(|(name, number, port)| seen(name, *number, *port)).collect();
        let members = Members { present: nodes(present), absent: nodes(absent) };
        let selector = Selector::default();
        let after = changed(&current, &members, shape(&selector));
        let shown = after.map(|after| applied(&current, &after));
        let expect = expect.map(|pool| {
            pool.iter().map(|(name, number, port)| seen(name, *number, *port)).collect::<Vec<_>>()
        });
        assert_eq!(shown, expect, "{what}");
    }
}

#[test]
fn what_is_known_of_a_foreign_member_is_written_with_it() {
    let row = json!({
        "id": "m", "name": "vm", "address": "10.0.0.9", "protocol_port": 80, "weight": 7,
        "backup": true, "subnet_id": "its own", "monitor_port": 8080,
    });
    let stranger = SeenMember::of_row(serde_json::from_value(row).unwrap());
    let members = Members { present: nodes(&[1]), absent: Arc::default() };
    let selector = Selector::default();
    let current = [seen("n2", 2, PORT), stranger];
    assert!(has_foreign(&current, &members) && !has_foreign(&[], &members));
    let after = changed(&current, &members, shape(&selector)).unwrap();
    let own = after.iter().find(|member| member["name"] == "vm").unwrap();
    for (field, value) in
        [("weight", json!(7)), ("backup", json!(true)), ("subnet_id", json!("its own"))]
    {
        assert_eq!(own[field], value, "{field}");
    }
    assert_eq!(own["monitor_port"], 8080);
    let new = after.iter().find(|member| member["name"] == "n1").unwrap();
    assert_eq!((&new["subnet_id"], new.get("weight")), (&json!("s"), None));
}

proptest! {
    /// For any pool: after one change nothing is left to do, the pool is never emptied, no foreign
    /// member is removed, and no member is listed twice.
    #[test]
    fn one_change_is_enough_and_never_too_much(
        current in prop::collection::vec((0_u8..12, 0_u8..12, 0_u16..3), 0..10),
        present in prop::collection::btree_set(0_u8..10, 0..8),
        absent in prop::collection::btree_set(0_u8..10, 0..8),
        select in prop::option::of(0_u8..10),
    ) {
        let mut pool: BTreeMap<(u8, u16), SeenMember> = BTreeMap::new();
        for (name, number, port) in current {
            let port = [PORT, 30_001, 80][usize::from(port)];
            pool.insert((number, port), seen(&format!("n{name}"), number, port));
        }
        let current: Vec<_> = pool.into_values().collect();
        let list = |set: &BTreeSet<u8>| nodes(&set.iter().copied().collect::<Vec<_>>());
        let members = Members { present: list(&present), absent: list(&absent) };
        let selector = Selector::parse(&select.map_or(String::new(), |it| format!("number={it}")));
        let after = match changed(&current, &members, shape(&selector)) {
            None => current.clone(),
            Some(after) => applied(&current, &after),
        };
        prop_assert_eq!(changed(&after, &members, shape(&selector)), None);
        prop_assert!(current.is_empty() || !after.is_empty());
        let places: BTreeSet<_> = after.iter().map(|it| (it.address, it.port)).collect();
        prop_assert_eq!(places.len(), after.len());
        let named = |name: &str| {
            let number: u8 = name.trim_start_matches('n').parse().unwrap();
            present.contains(&number) || absent.contains(&number)
        };
        for stranger in current.iter().filter(|it| !named(&it.name)) {
            prop_assert!(after.iter().any(|it| it.address == stranger.address), "{:?}", stranger);
        }
        for number in present.iter().filter(|it| select.is_none_or(|one| one == **it)) {
            prop_assert!(places.contains(&(IpAddr::from([10, 0, 0, *number]), PORT)));
        }
    }
}
