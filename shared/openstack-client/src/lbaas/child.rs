//! The paths of a load balancer's children, and the names of the operations on them.

use http::Method;

use super::{Child, LBAAS};
use crate::text::query;

impl Child {
    /// Returns the member of bodies that holds it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Pool => "pool",
            Self::Monitor => "healthmonitor",
        }
    }

    /// Returns the path of the collection, or of the child with this ID.
    pub fn path(self, id: Option<&str>) -> String {
        let id = id.map_or_else(String::new, |id| format!("/{}", query(id)));
        format!("{LBAAS}/{}s{id}", self.key())
    }

    /// Returns the name of the write in metrics.
    pub fn operation(self, method: &Method) -> &'static str {
        match (self, method) {
            (Self::Listener, &Method::POST) => "loadbalancer_listener_create",
            (Self::Listener, &Method::DELETE) => "loadbalancer_listener_delete",
            (Self::Listener, _) => "loadbalancer_listener_update",
            (Self::Pool, &Method::POST) => "loadbalancer_pool_create",
            (Self::Pool, &Method::DELETE) => "loadbalancer_pool_delete",
            (Self::Pool, _) => "loadbalancer_pool_update",
            (Self::Monitor, &Method::POST) => "loadbalancer_healthmonitor_create",
            (Self::Monitor, &Method::DELETE) => "loadbalancer_healthmonitor_delete",
            (Self::Monitor, _) => "loadbalancer_healthmonitor_update",
        }
    }
}
