//! Kubernetes objects as plain values, for plans and policies. This crate has no client;
//! `ccm-kube` reads these objects from the API server and writes them.
//!
//! | module | what it holds |
//! |---|---|
//! | `node`, `node_change`, `node_lease` | a node; a decided change of a node; the Lease of its kubelet |
//! | [`node_keys`], [`node_ips`], [`instance_gone`] | keys of taints, annotations and labels; the addresses given to the kubelet; the mark of a deletion |
//! | `whose_node` | which cloud a node belongs to, by its provider ID |
//! | `service`, `service_reading`, [`service_keys`] | a Service; the fields that a program keeps; its finalizers, annotations and labels |
//! | `labels`, [`label_rules`] | the labels of an object, and text that objects share; the labels that the API server accepts |
//! | `reference`, `ip` | references to objects; IP addresses as Kubernetes reads them |

pub mod instance_gone;
mod ip;
pub mod label_rules;
mod labels;
mod node;
mod node_change;
pub mod node_ips;
pub mod node_keys;
mod node_lease;
mod reference;
mod service;
pub mod service_keys;
mod service_reading;
mod whose_node;

pub use ip::parse_ip;
pub use labels::{Labels, Shared};
pub use node::{Address, Condition, Node, OWN_ANNOTATIONS, Taint};
pub use node_change::NodeChange;
pub use node_lease::{NODE_LEASES, NodeLease};
pub use reference::ObjectRef;
pub use service::{
    IngressPort, Service, ServiceCondition, ServiceDetails, ServiceIngress, ServicePort,
};
pub use service_reading::{LARGEST_SERVICE, ServiceReading, TooLarge, serves_class};
pub use whose_node::{WhoseNode, whose_node};
