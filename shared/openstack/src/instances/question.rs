//! Decides how a node is looked up by its identifiers.

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, Lookup, LookupResult, NodeIdentity};
use ccm_openstack_client::{ids::ServerId, text::MAX_VALUE};

use crate::ids::{self, Parsed};

/// The lookup of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLookup {
    /// By the server's ID, from the provider ID.
    ById {
        /// The server.
        id: ServerId,
        /// The node's provider ID.
        spelt: String,
    },
    /// By system UUID and name, without a provider ID.
    Search {
        /// The system UUID, which is the server's ID on most hypervisors.
        uuid: Option<ServerId>,
        /// Its name.
        name: String,
    },
    /// Answered without a request.
    Settled(LookupResult),
}

impl NodeLookup {
    /// Returns the lookup of this node, for the provider of this region.
    pub fn new(node: &NodeIdentity, region: Option<&str>) -> Self {
        let Some(text) = node.provider_id.as_deref().filter(|text| !text.is_empty()) else {
            let uuid = node.system_uuid.as_deref().and_then(|text| ServerId::parse(text.trim()));
            return Self::Search { uuid, name: node.name.clone() };
        };
        let shown = one_line(text, MAX_VALUE);
        let has_another_scheme = text.contains("://") && !ids::has_scheme(text);
        if has_another_scheme {
            return not_ours(format!("provider ID {shown} does not have the scheme openstack"));
        }
        match ids::parse(text, region) {
            Parsed::Ours(id) => Self::ById { id, spelt: shown },
            Parsed::AnotherRegion(_) => not_ours(format!(
                "provider ID {shown} is in another region than {}",
                region.map_or("the one in use".to_owned(), |own| format!("the configured {own:?}"))
            )),
            // Without the scheme the ID belongs to another provider.
            Parsed::Malformed(_) if !ids::has_scheme(text) => {
                not_ours(format!("provider ID {shown} is not an OpenStack provider ID"))
            }
            Parsed::Malformed(why) => {
                let why = one_line(&why, MAX_VALUE);
                Self::Settled(Err(CloudError::new(ErrorKind::Invalid, why)))
            }
        }
    }

    /// Returns the ID of the server, if it is known.
    pub fn server(&self) -> Option<&ServerId> {
        match self {
            Self::ById { id, .. } => Some(id),
            Self::Search { uuid, .. } => uuid.as_ref(),
            Self::Settled(_) => None,
        }
    }

    /// Returns true if it needs a request.
    pub fn asks_the_cloud(&self) -> bool {
        !matches!(self, Self::Settled(_))
    }
}

fn not_ours(reason: String) -> NodeLookup {
    NodeLookup::Settled(Ok(Lookup::NotOurs(reason)))
}
