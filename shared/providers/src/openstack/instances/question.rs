//! What a node asks, by what it says of itself.

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, Lookup, LookupResult, NodeIdentity};

use super::super::{
    ids::{self, Parsed, ServerId},
    text::MAX_VALUE,
};

/// The scheme of our provider IDs, with what follows it.
const SCHEME: &str = "openstack://";

/// A question about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Its provider ID names this server.
    ById {
        /// The server.
        id: ServerId,
        /// The provider ID as the node has it.
        spelt: String,
    },
    /// It has no provider ID.
    Search {
        /// Its system UUID, which is the server's ID where a hypervisor sets it.
        uuid: Option<ServerId>,
        /// Its name.
        name: String,
    },
    /// Answered without asking.
    Settled(LookupResult),
}

impl Question {
    /// The question about this node, for the provider of this region.
    pub(super) fn of(node: &NodeIdentity, region: Option<&str>) -> Self {
        let Some(text) = node.provider_id.as_deref().filter(|text| !text.is_empty()) else {
            let uuid = node.system_uuid.as_deref().and_then(|text| ServerId::parse(text.trim()));
            return Self::Search { uuid, name: node.name.clone() };
        };
        let shown = one_line(text, MAX_VALUE);
        let has_another_scheme = text.contains("://") && !text.starts_with(SCHEME);
        if has_another_scheme {
            return not_ours(format!("provider ID {shown} is of another scheme than openstack"));
        }
        match ids::parse(text, region) {
            Parsed::Ours(id) => Self::ById { id, spelt: shown },
            Parsed::AnotherRegion(_) => not_ours(format!(
                "provider ID {shown} is of another region than {}",
                region.map_or("the one in use".to_owned(), |own| format!("{own:?}, which is set"))
            )),
            // Without our scheme it is nobody's.
            Parsed::Malformed(_) if !text.starts_with(SCHEME) => {
                not_ours(format!("provider ID {shown} is not one of OpenStack's"))
            }
            Parsed::Malformed(why) => {
                let why = one_line(&why, MAX_VALUE);
                Self::Settled(Err(CloudError::new(ErrorKind::Invalid, why)))
            }
        }
    }

    /// The server that it is about, if it names one.
    pub(super) fn server(&self) -> Option<&ServerId> {
        match self {
            Self::ById { id, .. } => Some(id),
            Self::Search { uuid, .. } => uuid.as_ref(),
            Self::Settled(_) => None,
        }
    }

    /// Whether it takes a request to answer it.
    pub(super) fn asks_the_cloud(&self) -> bool {
        !matches!(self, Self::Settled(_))
    }
}

fn not_ours(reason: String) -> Question {
    Question::Settled(Ok(Lookup::NotOurs(reason)))
}
