//! Events: LAST SEEN, TYPE, REASON, OBJECT, MESSAGE.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age_of, or, text};

pub(super) const COLUMNS: &[Column] = &[
    ("Last Seen", false),
    ("Type", false),
    ("Reason", false),
    ("Object", false),
    ("Subobject", true),
    ("Source", true),
    ("Message", false),
    ("First Seen", true),
    ("Count", true),
    ("Name", true),
];

pub(super) fn cells(event: &Value, now: Timestamp) -> Value {
    let first = if event["firstTimestamp"].is_null() {
        &event["eventTime"]
    } else {
        &event["firstTimestamp"]
    };
    let series = &event["series"];
    let (last, count) = match (series.is_null(), event["lastTimestamp"].is_null()) {
        (false, _) => (&series["lastObservedTime"], &series["count"]),
        (true, false) => (&event["lastTimestamp"], &event["count"]),
        (true, true) => (first, &event["count"]),
    };
    let about = &event["involvedObject"];
    let kind = text(&about["kind"]).to_lowercase();
    let object = match text(&about["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    json!([
        age_of(last, now),
        text(&event["type"]),
        text(&event["reason"]),
        object,
        text(&about["fieldPath"]),
        source(event),
        text(&event["message"]).trim(),
        age_of(first, now),
        count.as_i64().unwrap_or(0).max(1).to_string(),
        text(&event["metadata"]["name"]),
    ])
}

fn source(event: &Value) -> String {
    let component = or(text(&event["source"]["component"]), text(&event["reportingComponent"]));
    match or(text(&event["source"]["host"]), text(&event["reportingInstance"])) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
