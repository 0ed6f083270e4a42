//! The item list of `--controllers`.

use crate::{
    identity::{Controller, Identity},
    programs,
};

/// An item that names no known controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not in the list of known controllers: {}", known().collect::<Vec<_>>().join(", "))]
pub struct UnknownController {
    /// The name as given, without its sign.
    pub name: String,
}

fn known() -> impl Iterator<Item = &'static str> {
    programs::controllers().flat_map(|controller| [controller.name, controller.alias])
}

/// Returns the canonical name of a controller given by name or alias.
fn canonical(name: &str) -> &str {
    programs::controllers()
        .find(|controller| controller.alias == name)
        .map_or(name, |controller| controller.name)
}

/// Returns true if the list enables a controller of this program.
pub fn enabled(list: &[String], identity: &Identity) -> bool {
    programs::controllers_of(identity).any(|controller| enables(list, controller))
}

/// Returns true if the list enables this controller: the first item that names it decides;
/// otherwise a `*` in the list enables it.
pub fn enables(list: &[String], controller: Controller) -> bool {
    let named = list.iter().find_map(|item| {
        let (name, on) = signed(item);
        (canonical(name) == controller.name || name == controller.alias).then_some(on)
    });
    named.unwrap_or_else(|| list.iter().any(|item| item == "*"))
}

/// Returns all items that name no known controller.
pub fn unknown(list: &[String], identity: &Identity) -> Vec<UnknownController> {
    let own = || programs::controllers_of(identity);
    let is_known = |name: &str| {
        own().any(|own| name == own.name || name == own.alias) || known().any(|it| it == name)
    };
    list.iter()
        .filter(|item| *item != "*")
        .map(|item| signed(item).0)
        .filter(|name| !is_known(name))
        .map(|name| UnknownController { name: name.to_owned() })
        .collect()
}

/// Returns an item without its sign, and true if it enables the controller.
fn signed(item: &str) -> (&str, bool) {
    match item.strip_prefix('-') {
        Some(name) => (name, false),
        None => (item, true),
    }
}
