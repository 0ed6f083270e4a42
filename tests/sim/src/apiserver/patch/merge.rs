//! JSON merge patches, RFC 7386.

use serde_json::{Map, Value};

pub(super) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            apply(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The examples of RFC 7386, appendix A.
    #[test]
    fn examples_of_the_rfc() {
        let check = |mut target: Value, patch: Value, expect: Value| {
            apply(&mut target, &patch);
            assert_eq!(target, expect, "{patch}");
        };
        check(json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"}));
        check(json!({"a":"b"}), json!({"a":null}), json!({}));
        check(json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"}));
        check(json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"}));
        check(json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]}));
        check(json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}}));
        check(json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]}));
        check(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]));
        check(json!({"a":"b"}), json!(["c"]), json!(["c"]));
        check(json!({"a":"foo"}), json!(null), json!(null));
        check(json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1}));
        check(json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"}));
        check(json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}}));
    }
}
