//! The item list of `--controllers`.

use crate::{identity::Identity, programs};

/// An item that names no known controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not in the list of known controllers: {}", known().collect::<Vec<_>>().join(", "))]
pub struct UnknownController {
    /// The name as given, without its sign.
    pub name: String,
}

fn known() -> impl Iterator<Item = &'static str> {
    programs::controllers().flat_map(|(canonical, alias)| [canonical, alias])
}

/// The canonical name of a controller given by name or alias.
fn canonical(name: &str) -> &str {
    programs::controllers()
        .find(|(_, alias)| *alias == name)
        .map_or(name, |(canonical, _)| canonical)
}

/// Whether the list enables this program's controller: the first item that names it decides;
/// otherwise a `*` in the list enables it.
pub fn enabled(list: &[String], identity: &Identity) -> bool {
    let named = list.iter().find_map(|item| {
        let (name, on) = signed(item);
        (canonical(name) == identity.controller || name == identity.alias).then_some(on)
    });
    named.unwrap_or_else(|| list.iter().any(|item| item == "*"))
}

/// All items that name no known controller.
pub fn unknown(list: &[String], identity: &Identity) -> Vec<UnknownController> {
    let is_known = |name: &str| {
        name == identity.controller || name == identity.alias || known().any(|it| it == name)
    };
    list.iter()
        .filter(|item| *item != "*")
        .map(|item| signed(item).0)
        .filter(|name| !is_known(name))
        .map(|name| UnknownController { name: name.to_owned() })
        .collect()
}

/// An item without its sign, and whether it enables the controller.
fn signed(item: &str) -> (&str, bool) {
    match item.strip_prefix('-') {
        Some(name) => (name, false),
        None => (item, true),
    }
}
