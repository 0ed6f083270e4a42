//! How nodes are read and kept: [`wire`] reads what arrives and is lenient to a fault. An
//! unknown field is skipped without being kept, a field of the wrong type counts as
//! absent, and an object that makes no sense at all can be left out instead of ending the
//! whole list.

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
