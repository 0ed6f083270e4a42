//! The conditions of a Service, and the reasons in them: one table, which also makes the
//! documentation.

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
            /// The reason as it is written: one CamelCase word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The condition's type.
            pub const fn condition(self) -> &'static str {
                match self { $(Self::$name => $condition,)+ }
            }

            /// The condition's status.
            pub const fn status(self) -> &'static str {
                match self { $(Self::$name => $status,)+ }
            }

            /// Its meaning, for the documentation.
            pub fn meaning(self) -> String {
                match self { $(Self::$name => concat!($($text),+).trim().to_owned(),)+ }
            }
        }
    };
}

reasons! {
    /// The load balancer is being created. The condition is written before the first call to the cloud.
    Creating: PROVISIONING "True";
    /// The cloud has worked on the load balancer for more than a minute, or has refused a change for as long
    /// because of another one. The message says more.
    WaitingForCloud: PROVISIONING "True";
    /// A field or an annotation of the Service is wrong: the message names it and says what is right. The
    /// configuration stays as it is until then; members follow the nodes. What the cloud has refused is tried again
    /// every 5 minutes, and soon when the Service, the nodes, the settings or the provider's configuration change.
    InvalidConfiguration: PROVISIONING "True";
    /// The namespace has as many load balancers as --max-load-balancers-per-namespace allows. The Service gets its
    /// own as soon as one of the others goes.
    LimitReached: PROVISIONING "True";
    /// A quota of the cloud project is used up: the message names it.
    QuotaExceeded: PROVISIONING "True";
    /// The cloud asks for a lower call rate.
    Throttled: PROVISIONING "True";
    /// The cloud rejects the credentials, or they lack a permission.
    CloudAccessDenied: PROVISIONING "True";
    /// The cloud says that the load balancer, or an object that it needs, contradicts the Service,
    /// and that a person has to decide. Nothing is created until then.
    Conflict: PROVISIONING "True";
    /// The cloud did not answer in time, or not in a way that can be understood.
    CloudUnavailable: PROVISIONING "True";
    /// The provider does not offer load balancers, or no longer does. Until it does, nothing is
    /// created, changed or deleted.
    LoadBalancersNotOffered: PROVISIONING "True";
    /// The load balancer has failed in the cloud. The message says if service-ccm tries to repair it, or a person has
    /// to repair or delete it.
    LoadBalancerFailed: PROVISIONING "True";
    /// The load balancer is gone or has failed, and no other one is made before that is proved or a user
    /// approves: too many are lost at once. The message says what the cloud has answered.
    ReplacementHeld: PROVISIONING "True";
    /// Another controller's load balancer may be taken over: see the page /plan.
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
    /// The load balancer has an address, and a member behind each port with a node port, as last seen in
    /// the cloud.
    Serving: SERVING "True";
    /// It serves, and some members are held: their nodes are gone or changed, and too many at once.
    MembersHeld: SERVING "True";
    /// It has no address yet.
    NoAddress: SERVING "False";
    /// The provider gives no address that the Service may show. The message names the address and says why.
    AddressRefused: SERVING "False";
    /// No node of the cluster can be a member, no port of the Service has a node port, or the message
    /// names the ports without a member, or why the provider leaves the nodes out.
    NoMembers: SERVING "False";
    /// It is being deleted.
    BeingDeleted: SERVING "False";
    /// The cloud does not show the load balancer any more, and no other one has an address yet. The Service
    /// keeps the address in its status until another one is proven.
    LoadBalancerGone: SERVING "Unknown";
    /// Its serving state could not be read since the time of the condition. The message says why.
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

    /// The reason for an error of the cloud.
    pub fn of(error: &CloudError) -> Self {
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
            let reason = Reason::of(&CloudError::new(*kind, "words"));
            assert_eq!(reason == Reason::WaitingForCloud, kind.is_at_work(), "{kind:?}");
        }
    }
}
