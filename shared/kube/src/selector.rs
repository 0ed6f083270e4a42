//! Label selectors in the syntax of kubectl: `role=worker,zone in (a,b),!spot`.

use std::{collections::BTreeMap, fmt, str::FromStr};

use ccm_objects::{Node, Shared, label_rules};
use kube::core::{Expression, Selector, SelectorExt as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Selects nodes by their labels. The default selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSelector {
    selector: Selector,
}

/// Why a text is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{part:?} is not a label requirement: must be key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
)]
pub struct InvalidSelector {
    /// The invalid part.
    part: String,
}

impl NodeSelector {
    /// Returns true if the node is selected.
    pub fn matches(&self, node: &Node) -> bool {
        self.selects(&node.labels)
    }

    /// Returns true if an object with these labels is meant.
    pub fn selects(&self, labels: &BTreeMap<Shared, Shared>) -> bool {
        if self.selector.selects_all() {
            return true;
        }
        let text = |text: &Shared| text.to_string();
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| (text(key), text(value))).collect();
        self.selector.matches(&labels)
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.selector.fmt(f)
    }
}

impl Serialize for NodeSelector {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NodeSelector {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl FromStr for NodeSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        // Only a blank text selects all: with `,` or `a,` a part was forgotten.
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Ok(Self { selector: split(text).map(expression).collect::<Result<_, _>>()? })
    }
}

/// Returns the parts between commas outside of parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |character: char| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    })
    .map(str::trim)
}

fn expression(part: &str) -> Result<Expression, InvalidSelector> {
    let invalid = || InvalidSelector { part: part.to_owned() };
    let key =
        |text: &str| word(text, |key| label_rules::check_key(key).is_ok()).ok_or_else(invalid);
    let value = |text: &str| {
        word(text, |value| label_rules::check_value(value).is_ok()).ok_or_else(invalid)
    };
    if let Some(rest) = part.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(key(rest)?));
    }
    if let Some((left, right)) = part.split_once("!=") {
        return Ok(Expression::NotEqual(key(left)?, value(right)?));
    }
    if let Some((left, right)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Expression::Equal(key(left)?, value(right)?));
    }
    let Some((left, list)) = part.split_once('(') else {
        return Ok(Expression::Exists(key(part)?));
    };
    let list = list.strip_suffix(')').ok_or_else(invalid)?;
    let values = list.split(',').map(value).collect::<Result<_, _>>()?;
    match left.trim().rsplit_once(char::is_whitespace) {
        Some((name, "in")) => Ok(Expression::In(key(name)?, values)),
        Some((name, "notin")) => Ok(Expression::NotIn(key(name)?, values)),
        _ => Err(invalid()),
    }
}

fn word(text: &str, allowed: fn(&str) -> bool) -> Option<String> {
    let text = text.trim();
    allowed(text).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        let labels = [("role", "worker"), ("zone", "a"), ("example.com/spot", "")];
        Node {
            labels: labels.map(|(key, value)| (key.into(), value.into())).into(),
            ..Node::default()
        }
    }

    #[test]
    fn nodes_are_chosen_by_their_labels() {
        for (text, expect) in [
            ("", true),
            ("  ", true),
            ("role=worker", true),
            ("role==worker,zone!=b", true),
            ("role = worker , zone in (a, b)", true),
            ("zone in (b,c)", false),
            ("zone notin (b,c),role", true),
            ("example.com/spot", true),
            ("!example.com/spot", false),
            ("!other", true),
            ("other!=x", true),
            ("other=", false),
            ("example.com/spot=", true),
        ] {
            let selector: NodeSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&node()), expect, "{text}");
            assert_eq!(selector.to_string().parse(), Ok(selector), "{text} written and read");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_by_name() {
        for (text, part) in [
            ("role=worker,=x", "=x"),
            (",", ""),
            (" , ", ""),
            ("role=worker,", ""),
            ("role,,zone", ""),
            ("zone in a,b", "zone in a"),
            ("zone in (a,b", "zone in (a,b"),
            ("zone among (a)", "zone among (a)"),
            ("a/b/c=x", "a/b/c=x"),
            ("role=wörker", "role=wörker"),
            ("role=a=b", "role=a=b"),
            ("role=-a", "role=-a"),
            ("Example.com/role", "Example.com/role"),
            ("!", "!"),
        ] {
            let error = text.parse::<NodeSelector>().unwrap_err();
            assert_eq!(error.part, part, "{text}");
        }
    }
}
