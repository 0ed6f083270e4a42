//! The labels of an object, and text that objects share.

use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// Interned text that many objects share.
pub type Shared = Arc<str>;

/// The labels of an object: a map that clones share until one of them changes it. They are the
/// largest part of a stored node, and stay the same from one version of it to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels(Arc<BTreeMap<Shared, Shared>>);

impl Deref for Labels {
    type Target = BTreeMap<Shared, Shared>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Labels {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl FromIterator<(Shared, Shared)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Shared, Shared)>>(all: I) -> Self {
        Self(Arc::new(all.into_iter().collect()))
    }
}

impl<const N: usize> From<[(Shared, Shared); N]> for Labels {
    fn from(all: [(Shared, Shared); N]) -> Self {
        all.into_iter().collect()
    }
}
