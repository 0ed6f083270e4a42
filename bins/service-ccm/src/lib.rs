//! service-ccm: load balancers for Services.
pub mod plan;
