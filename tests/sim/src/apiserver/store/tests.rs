use proptest::prelude::*;
use serde_json::json;

use super::{super::resources, *};

fn config_maps() -> &'static Resource {
    resources::by_plural("configmaps").unwrap()
}

fn value(name: &str, text: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "d" }, "data": { "v": text } })
}

const ALL: Range<'static> = Range { prefix: "", after: None, limit: 0 };

fn names(page: &Page) -> Vec<&str> {
    page.objects.iter().map(|object| object.name.as_str()).collect()
}

#[test]
fn writes_need_the_version_they_saw() {
    let store = Store::new(100);
    let first = store.put(config_maps(), None, value("a", "1")).unwrap();
    assert!(store.put(config_maps(), None, value("a", "2")).is_err());
    assert!(store.put(config_maps(), Some(first.revision + 1), value("a", "2")).is_err());
    let second = store.put(config_maps(), Some(first.revision), value("a", "2")).unwrap();
    assert_eq!(second.revision, first.revision + 1);
    assert!(store.remove(config_maps(), "d/a", first.revision).is_err());
    let gone = store.remove(config_maps(), "d/a", second.revision).unwrap();
    assert_eq!((gone.revision, store.revision()), (4, 4));
    assert_eq!(gone.value()["metadata"]["resourceVersion"], "4");
}

#[test]
fn pages_of_one_version_ignore_later_writes() {
    let store = Store::new(100);
    for name in ["a", "b", "c", "d"] {
        store.put(config_maps(), None, value(name, "1")).unwrap();
    }
    let first = store.page(config_maps(), None, &Range { limit: 2, ..ALL }, |_| true).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], 2));
    let c = store.get(config_maps(), "d/c").unwrap();
    store.remove(config_maps(), "d/c", c.revision).unwrap();
    store.put(config_maps(), None, value("cc", "1")).unwrap();
    let range = Range { after: first.after.as_deref(), limit: 2, ..ALL };
    let rest = store.page(config_maps(), Some(first.revision), &range, |_| true).unwrap();
    assert_eq!(names(&rest), ["c", "d"]);
    assert_eq!(rest.after, None);
    store.compact();
    assert!(store.page(config_maps(), Some(first.revision), &range, |_| true).is_err());
}

#[test]
fn history_is_bounded_and_old_versions_are_expired() {
    let store = Store::new(3);
    for name in ["a", "b", "c", "d", "e"] {
        store.put(config_maps(), None, value(name, "1")).unwrap();
    }
    assert_eq!(store.since(config_maps(), 2, 10).err(), Some(Compacted { oldest: 3 }));
    let (changes, reached) = store.since(config_maps(), 3, 2).unwrap();
    assert_eq!(
        changes.iter().map(|change| change.object.name.as_str()).collect::<Vec<_>>(),
        ["c", "d"]
    );
    assert_eq!(reached, 5);
    let nodes = resources::by_plural("nodes").unwrap();
    assert_eq!(store.since(nodes, 0, 2).map(|(_, reached)| reached), Ok(6));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A list at any version shows what was the present state at that time.
    #[test]
    fn old_versions_are_unchanged(writes in proptest::collection::vec((0_u8..5, any::<bool>()), 1..40)) {
        let store = Store::new(1000);
        let mut seen = Vec::new();
        for (step, (name, delete)) in writes.into_iter().enumerate() {
            let name = format!("n{name}");
            let current = store.get(config_maps(), &format!("d/{name}")).map(|object| object.revision);
            match current {
                Some(revision) if delete => drop(store.remove(config_maps(), &format!("d/{name}"), revision)),
                _ => drop(store.put(config_maps(), current, value(&name, &step.to_string()))),
            }
            let page = store.page(config_maps(), None, &ALL, |_| true).unwrap();
            seen.push((page.revision, page.objects.iter().map(|object| object.value()).collect::<Vec<_>>()));
        }
        for (revision, then) in seen {
            let page = store.page(config_maps(), Some(revision), &ALL, |_| true).unwrap();
            let now: Vec<_> = page.objects.iter().map(|object| object.value()).collect();
            prop_assert_eq!(&now, &then);
            for object in &page.objects {
                let at = store.get_at(config_maps(), &object.key, revision).unwrap();
                prop_assert_eq!(at.revision, object.revision);
            }
        }
    }
}
