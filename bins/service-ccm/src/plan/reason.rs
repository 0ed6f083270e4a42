//! The conditions of a Service and their reasons: one table, from which the documentation is also
//! made.

use ccm_cloud::{CloudError, ErrorKind};
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// The condition that says why a load balancer does not match its Service.
pub const PROVISIONING: &str = ccm_objects::service_keys::PROVISIONING;
/// The condition that says whether a load balancer can serve traffic.
pub const SERVING: &str = ccm_objects::service_keys::SERVING;

macro_rules! reasons {
    ($($(#[doc = $text:literal])+ $name:ident: $condition:ident $status:literal;)+) => {
        /// The reason in a condition.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, VariantArray, Serialize, Deserialize,
        )]
        pub enum Reason { $($(#[doc = $text])+ $name,)+ }

        impl Reason {
            /// Returns the reason as it is written: one CamelCase word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Returns the condition's type.
            pub const fn condition(self) -> &'static str {
                match self { $(Self::$name => $condition,)+ }
            }

            /// Returns the condition's status.
            pub const fn status(self) -> &'static str {
                match self { $(Self::$name => $status,)+ }
            }

            /// Returns its meaning, for the documentation.
            pub fn meaning(self) -> String {
                match self { $(Self::$name => concat!($($text),+).trim().to_owned(),)+ }
            }
        }
    };
}

reasons! {
    /// The load balancer is being created. The condition is written before the first call to the cloud.
    Creating: PROVISIONING "True";
    /// The cloud has worked on the load balancer for more than a minute, or has refused a change
    /// for that long because of another change. The message has the details.
    WaitingForCloud: PROVISIONING "True";
    /// A field or an annotation of the Service is wrong: the message names it and the correction.
    /// Until then the configuration does not change, but members follow the nodes. A change that
    /// the cloud has refused is tried again every 5 minutes, and soon after the Service, the nodes,
    /// the settings or the provider's configuration change.
    InvalidConfiguration: PROVISIONING "True";
    /// The namespace has as many load balancers as --max-load-balancers-per-namespace allows. The
    /// Service gets its own as soon as one of the others is deleted.
    LimitReached: PROVISIONING "True";
    /// A quota of the cloud project is used up: the message names it.
    QuotaExceeded: PROVISIONING "True";
    /// The cloud asks for a lower call rate.
    Throttled: PROVISIONING "True";
    /// The cloud rejects the credentials, or they lack a permission.
    CloudAccessDenied: PROVISIONING "True";
    /// The cloud says that the load balancer, or an object that it needs, contradicts the Service,
    /// and that a person must decide. Until then nothing is created.
    Conflict: PROVISIONING "True";
    /// The cloud did not answer in time, or its answer cannot be understood.
    CloudUnavailable: PROVISIONING "True";
    /// The provider does not offer load balancers, or not any more. Until it does, nothing is
    /// created, changed or deleted.
    LoadBalancersNotOffered: PROVISIONING "True";
    /// The load balancer has failed in the cloud. The message says whether service-ccm tries to
    /// repair it, or a person must repair or delete it.
    LoadBalancerFailed: PROVISIONING "True";
    /// The load balancer is gone or has failed. Too many are lost at once, so it is replaced only
    /// after a proof or a user's approval. The message has the answer of the cloud.
    ReplacementHeld: PROVISIONING "True";
    /// Another controller's load balancer can be adopted: see the page /plan.
    WaitingForAdoption: PROVISIONING "True";
    /// The Service is being deleted or has another type now, and the cloud deletes the load balancer.
    Deleting: PROVISIONING "True";
    /// The load balancer cannot be deleted yet. The message says why.
    DeletionFailed: PROVISIONING "True";
    /// The load balancer matches the Service.
    Provisioned: PROVISIONING "False";
    /// The load balancer matches the Service, except as the message says.
    PartlyProvisioned: PROVISIONING "False";
    /// Another controller of this cloud is responsible for the Service. The message says which.
    Elsewhere: PROVISIONING "False";
    /// When last seen in the cloud, the load balancer had an address, and a member behind each port
    /// with a node port.
    Serving: SERVING "True";
    /// It serves, but some members are held, because too many nodes are gone or have changed at
    /// once.
    MembersHeld: SERVING "True";
    /// It has no address yet, or is not complete yet.
    NoAddress: SERVING "False";
    /// The provider does not give an address that the Service may show. The message names the
    /// address and the reason.
    AddressRefused: SERVING "False";
    /// No node of the cluster can be a member, no port of the Service has a node port, or some
    /// ports have no member. The message names the ports, or the reason why the provider excludes
    /// the nodes.
    NoMembers: SERVING "False";
    /// It is being deleted.
    BeingDeleted: SERVING "False";
    /// The cloud does not show the load balancer any more, and a replacement does not have an
    /// address yet. The Service keeps the address in its status until another one is proven.
    LoadBalancerGone: SERVING "Unknown";
    /// Its serving state could not be read since the time of the condition. The message gives the
    /// reason.
    NotConfirmed: SERVING "Unknown";
}

impl Reason {
    /// Returns true if another message is a change: it names another mistake of the user, another
    /// cause of empty pools, or another load balancer to adopt.
    pub fn words_count(self) -> bool {
        use Reason::{InvalidConfiguration, NoMembers, PartlyProvisioned, WaitingForAdoption};
        matches!(self, InvalidConfiguration | NoMembers | PartlyProvisioned | WaitingForAdoption)
    }

    /// Returns true if its message names the address: another address is a change, also if it was
    /// written without the condition because the members were not known.
    pub fn names_address(self) -> bool {
        matches!(self, Self::Serving | Self::AddressRefused)
    }

    /// Returns true if the numbers in its message count nodes: other numbers alone are not a change.
    pub fn counts_nodes(self) -> bool {
        self == Self::NoMembers
    }

    /// Returns the reason for an error of the cloud.
    pub fn from_error(error: &CloudError) -> Self {
        match error.kind {
            _ if error.unsent => Self::WaitingForCloud,
            ErrorKind::Throttled => Self::Throttled,
            ErrorKind::Unauthorized | ErrorKind::Forbidden => Self::CloudAccessDenied,
            ErrorKind::QuotaExceeded => Self::QuotaExceeded,
            ErrorKind::Invalid | ErrorKind::Unsupported => Self::InvalidConfiguration,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::Busy | ErrorKind::Pending => Self::WaitingForCloud,
            _ => Self::CloudUnavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_one_word_with_a_meaning() {
        for reason in Reason::VARIANTS {
            let word = reason.as_str();
            assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
            assert!(reason.meaning().ends_with('.'), "{word}");
        }
    }

    #[test]
    fn a_cloud_that_is_at_work_is_waited_for() {
        for kind in ErrorKind::ALL {
            let reason = Reason::from_error(&CloudError::new(*kind, "words"));
            assert_eq!(reason == Reason::WaitingForCloud, kind.is_at_work(), "{kind:?}");
        }
    }
}
