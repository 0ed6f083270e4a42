//! The API object of an event: core/v1, as client-go writes it.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde_json::{Value, json};

use super::{Observed, correlator::Occurrence};
use ccm_objects::ObjectRef;

/// The longest name of an object.
const NAME_LIMIT: usize = 253;

/// Returns the namespace of an event. Events about cluster-scoped objects are in `default`.
pub(super) fn namespace(about: &ObjectRef) -> &str {
    about.namespace.as_deref().unwrap_or("default")
}

/// Returns the whole event, to be created.
pub(super) fn event(component: &str, event: &Observed, occurrence: &Occurrence) -> Event {
    let about = &event.about;
    let component = event.component.unwrap_or(component);
    Event {
        metadata: ObjectMeta {
            name: Some(occurrence.name.clone()),
            namespace: Some(namespace(about).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(about.api_version.to_owned()),
            kind: Some(about.kind.to_owned()),
            namespace: about.namespace.clone(),
            name: Some(about.name.clone()),
            uid: Some(about.uid.clone()),
            resource_version: Some(about.resource_version.clone()),
            field_path: None,
        },
        type_: Some(<&str>::from(event.kind).to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(occurrence.message.clone()),
        count: Some(count(occurrence)),
        first_timestamp: Some(Time(occurrence.first)),
        last_timestamp: Some(Time(event.at)),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(String::new()),
        ..Event::default()
    }
}

/// Returns the patch for a repeated event.
pub(super) fn again(event: &Observed, occurrence: &Occurrence) -> Value {
    json!({
        "count": count(occurrence),
        "lastTimestamp": Time(event.at),
        "message": occurrence.message,
    })
}

fn count(occurrence: &Occurrence) -> i32 {
    i32::try_from(occurrence.count).unwrap_or(i32::MAX)
}

/// Generates names of events.
#[derive(Default)]
pub(super) struct Names {
    last: i128,
}

impl Names {
    /// Returns the object's name and the time in nanoseconds, as in client-go, or a random name if
    /// that would be too long.
    pub(super) fn next(&mut self, about: &ObjectRef, at: Timestamp) -> String {
        // The name is unique even if the clock is coarse or jumps back.
        self.last = at.as_nanosecond().max(self.last + 1);
        let name = format!("{}.{:x}", about.name, self.last);
        if name.len() <= NAME_LIMIT { name } else { format!("{:032x}", rand::random::<u128>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_not_too_long() {
        let mut names = Names::default();
        let at = Timestamp::from_second(1).unwrap();
        let mut next = |object: &str| {
            names.next(&ObjectRef { name: object.to_owned(), ..ObjectRef::default() }, at)
        };
        assert_eq!(next("node-1.example"), "node-1.example.3b9aca00");
        assert_eq!(next("node-1.example"), "node-1.example.3b9aca01");
        assert_eq!(next(&"a".repeat(250)).len(), 32);
    }
}
