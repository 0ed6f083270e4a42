//! Chooses the parts of a Service that are kept, and finds parts that are too large.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use ccm_objects::{LARGEST_SERVICE, ServiceReading, TooLarge, service_keys};
use serde_json::value::{RawValue, to_raw_value};

use crate::wire::Fields;

/// The beginning of the names of annotations in [`TooLarge::part`].
const ANNOTATION: &str = "annotation ";

/// The parts of a Service that are kept besides its status, cut out as text.
pub(super) struct Parts<'a> {
    /// The annotations that are read.
    pub(super) annotations: Fields<'a>,
    pub(super) labels: Fields<'a>,
    pub(super) spec: Fields<'a>,
    /// The metadata that only the JSON has.
    metadata: Fields<'a>,
    has_json: bool,
    pub(super) too_large: Option<TooLarge>,
}

impl<'a> Parts<'a> {
    /// Returns the parts that this reading keeps. Without a reading it returns all of them, however
    /// large.
    pub(super) fn new(
        metadata: &Fields<'a>,
        object: &Fields<'a>,
        reading: Option<&ServiceReading>,
    ) -> Self {
        let has_json = reading.is_none_or(|reading| reading.json);
        let is_read = |key: &str| {
            let is_wanted = has_json || reading.is_none_or(|reading| reading.reads(key));
            key != service_keys::LAST_APPLIED && is_wanted
        };
        let others = ["managedFields", "resourceVersion", "annotations", "labels"];
        let mut parts = Self {
            annotations: metadata.object("annotations").only(is_read),
            labels: metadata.object("labels"),
            spec: object.object("spec"),
            metadata: metadata.clone().only(|key| !others.contains(&key)),
            has_json,
            too_large: None,
        };
        if reading.is_some() {
            parts.cut();
        }
        parts
    }

    /// Leaves out the largest parts until the rest is small enough.
    fn cut(&mut self) {
        let mut sizes: Vec<(usize, String)> = self
            .annotations
            .raws()
            .map(|(key, raw)| (key.len() + raw.get().len(), format!("{ANNOTATION}{key}")))
            .collect();
        sizes.push((size(&self.spec), "spec".to_owned()));
        sizes.push((size(&self.labels), "metadata.labels".to_owned()));
        if self.has_json {
            sizes.push((size(&self.metadata), "metadata".to_owned()));
        }
        sizes.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
        let mut total: usize = sizes.iter().map(|(bytes, _)| bytes).sum();
        for (bytes, part) in sizes {
            if total <= LARGEST_SERVICE {
                return;
            }
            total -= bytes;
            match (part.strip_prefix(ANNOTATION), part.as_str()) {
                (Some(key), _) => self.annotations.remove(key),
                (None, "spec") => self.spec = Fields::default(),
                (None, "metadata.labels") => self.labels = Fields::default(),
                (None, _) => self.metadata = Fields::default(),
            }
            match &mut self.too_large {
                Some(largest) => largest.others += 1,
                None => self.too_large = Some(TooLarge { part: part.into(), bytes, others: 0 }),
            }
        }
    }

    /// Returns metadata, spec and `status.loadBalancer` as JSON, if the provider wants the Service
    /// and the Service is whole.
    pub(super) fn json(&self, status: &Fields<'_>) -> Option<Arc<str>> {
        if !self.has_json || self.too_large.is_some() {
            return None;
        }
        let raw = |fields: &Fields<'_>| to_raw_value(&fields.raws().collect::<BTreeMap<_, _>>());
        let (annotations, labels) = (raw(&self.annotations).ok()?, raw(&self.labels).ok()?);
        let mut metadata: BTreeMap<&str, &RawValue> = self.metadata.raws().collect();
        metadata.insert("annotations", &annotations);
        if labels.get() != "{}" {
            metadata.insert("labels", &labels);
        }
        let metadata = to_raw_value(&metadata).ok()?;
        let (kind, version) = (to_raw_value("Service").ok()?, to_raw_value("v1").ok()?);
        let spec = raw(&self.spec).ok()?;
        let status = raw(&status.clone().only(|key| key == "loadBalancer")).ok()?;
        let whole = BTreeMap::from([
            ("apiVersion", &version),
            ("kind", &kind),
            ("metadata", &metadata),
            ("spec", &spec),
            ("status", &status),
        ]);
        serde_json::to_string(&whole).ok().map(Into::into)
    }
}

fn size(fields: &Fields<'_>) -> usize {
    fields.raws().map(|(key, raw)| key.len() + raw.get().len()).sum()
}
