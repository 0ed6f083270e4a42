//! Node IPAM: gives nodes their pod CIDRs.

pub mod ipam;
