//! How nodes are read and stored. [`wire`] parses leniently: it skips unknown fields without
//! storing them, treats a field of the wrong type as absent, and lets the caller leave out
//! an unreadable object instead of failing the whole list.

mod intern;
pub mod wire;

use ccm_objects::{Node, Shared};

use crate::store::Stored;

impl Stored for Node {
    type Wire = wire::Received;

    fn key(&self) -> &Shared {
        &self.name
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn set_resource_version(&mut self, version: &str) {
        self.resource_version = version.into();
    }

    fn read(wire: wire::Received) -> Result<Self, String> {
        wire.into_node()
    }
}

#[cfg(test)]
mod tests;
