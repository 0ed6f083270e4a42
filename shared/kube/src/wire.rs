//! The wire format of an object, generic over its kind.
//!
//! Each field is first cut out as text and then parsed, so that a field of the wrong type
//! does not affect others: it counts as absent. Unused data (`managedFields`, images,
//! foreign annotations) is skipped and never allocated.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use ccm_objects::Shared;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{intern::intern, rule::Rule};

/// A kind of object that is read field by field.
pub trait Kind: Clone + fmt::Debug + Send + Sync + 'static {
    /// Its scope: namespaced or not.
    type Scope;
    /// The name of the kind: `Node`.
    const KIND: &'static str;
    /// Its plural name in paths: `nodes`.
    const PLURAL: &'static str;
    /// Its API group; empty for the core.
    const GROUP: &'static str = "";

    /// The part of an object that is kept; see [`Stored::Kept`](crate::store::Stored::Kept).
    type Kept: Default + PartialEq + Send + Sync + 'static;

    /// Reads an object that has a name.
    fn from_fields(
        name: &str,
        metadata: &Fields<'_>,
        object: &Fields<'_>,
        rule: &Rule<Self::Kept>,
    ) -> Self;
}

/// One object of a list or a watch.
#[derive(Clone, Debug)]
pub struct Received<K> {
    // kube's watcher reads name, namespace and resource version.
    meta: ObjectMeta,
    text: Box<RawValue>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Received<K> {
    /// Returns the object as this rule keeps it, or why it is unreadable.
    pub fn into_object(self, rule: &Rule<K::Kept>) -> Result<K, String> {
        let name = self.meta.name.as_deref().ok_or("it has no valid name")?;
        let fields: Fields<'_> = serde_json::from_str(self.text.get()).unwrap_or_default();
        Ok(K::from_fields(name, &fields.object("metadata"), &fields, rule))
    }

    fn new(text: Box<RawValue>) -> Self {
        let fields: Fields<'_> = serde_json::from_str(text.get()).unwrap_or_default();
        let metadata = fields.object("metadata");
        let meta = ObjectMeta {
            name: metadata.text("name"),
            namespace: metadata.text("namespace"),
            resource_version: metadata.text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Self { meta, text, kind: PhantomData }
    }
}

/// The name by which serde_json detects a request for a value's raw text.
const TEXT: &str = "$serde_json::private::RawValue";

impl<'de, K: Kind> Deserialize<'de> for Received<K> {
    /// Parses the fields. Fails only on invalid JSON.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(TEXT, WholeObject(PhantomData))
    }
}

struct WholeObject<K>(PhantomData<K>);

impl<'de, K: Kind> Visitor<'de> for WholeObject<K> {
    type Value = Received<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    /// Returns the raw text from the response.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Received<K>, A::Error> {
        Box::<RawValue>::deserialize(MapAccessDeserializer::new(map)).map(Received::new)
    }

    /// Returns a value that is already parsed. This happens to a watch event whose `object` comes
    /// before its `type`: kube-apiserver writes the type first, but a proxy that sorts fields may
    /// not.
    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        parsed: D,
    ) -> Result<Received<K>, D::Error> {
        let text = to_raw_value(&Value::deserialize(parsed)?);
        text.map(Received::new).map_err(serde::de::Error::custom)
    }
}

impl<K: Kind> Resource for Received<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        K::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The fields of an object, each cut out as text.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Fields<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Returns a field; null and values of the wrong type count as absent.
    pub fn get<T: Deserialize<'a>>(&self, key: &str) -> Option<T> {
        value(self.0.get(key)?)
    }

    /// Returns the fields with such names.
    #[must_use]
    pub fn only(mut self, is_such: impl Fn(&str) -> bool) -> Self {
        self.0.retain(|key, _| is_such(key));
        self
    }

    /// Returns all fields as they were sent.
    pub fn raws(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_str(), *value))
    }

    /// Removes a field.
    pub fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Returns a text. Absent and empty are the same in Kubernetes.
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).filter(|text: &String| !text.is_empty())
    }

    /// Returns a text that many objects share; empty if it is absent.
    pub fn shared(&self, key: &str) -> Shared {
        intern(&self.text(key).unwrap_or_default())
    }

    /// Returns a text that may be empty.
    pub fn optional(&self, key: &str) -> Option<Shared> {
        self.get(key).map(|text: String| intern(&text))
    }

    /// Returns the fields of an object; empty if it is absent.
    #[must_use]
    pub fn object(&self, key: &str) -> Self {
        self.get(key).unwrap_or_default()
    }

    /// Returns a list, without unreadable entries and without spare capacity.
    pub fn list<T: Deserialize<'a>, R>(&self, key: &str, read: impl Fn(T) -> Option<R>) -> Vec<R> {
        let list: Vec<&RawValue> = self.get(key).unwrap_or_default();
        let list: Box<[R]> = list.into_iter().filter_map(|entry| read(value(entry)?)).collect();
        list.into_vec()
    }

    /// Returns a map of texts, without entries of another type.
    pub fn texts(&self, key: &str) -> impl Iterator<Item = (String, String)> {
        self.object(key).into_texts()
    }

    /// Returns the fields that are texts.
    pub fn into_texts(self) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter().filter_map(|(key, text)| Some((key, value(text)?)))
    }
}

fn value<'a, T: Deserialize<'a>>(text: &'a RawValue) -> Option<T> {
    serde_json::from_str::<Option<T>>(text.get()).ok()?
}
