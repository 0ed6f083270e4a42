//! The capabilities on [OpenStack's services in memory](ccm_openstack_client::scripted), for the tests of
//! other crates. With the feature `scripted` only.

use std::{path::Path, sync::Arc};

use ccm_base::Files;
use ccm_cloud::{Instances, LoadBalancers, Routes};
use ccm_openstack_client::{config::Environment, scripted::Scripted};

use crate::{
    balancers::OctaviaBalancers, config::Config, instances::OpenStackInstances,
    routes::NeutronRoutes,
};

/// The capabilities of the cloud for one process.
#[derive(Clone)]
pub struct Capabilities {
    /// Nova's servers.
    pub instances: Arc<dyn Instances>,
    /// Octavia's load balancers.
    pub load_balancers: Arc<dyn LoadBalancers>,
    /// The routes of the router in `router-id`, which must be set if routes are used.
    pub routes: Arc<dyn Routes>,
}

impl Capabilities {
    /// Creates a new process with these services. `conf` is the text of a `cloud.conf` after the
    /// login in `[Global]`. It panics if that has mistakes.
    pub fn new(services: &Arc<Scripted>, conf: &str) -> Self {
        let login = "[Global]\nauth-url=https://keystone\nuser-id=u\ntenant-id=t\npassword=p\n";
        let (path, text) = (Path::new("/cloud.conf"), format!("{login}{conf}"));
        let config =
            match Config::parse(path, &text, &Environment::default(), &mut Files::default()) {
                Ok(loaded) => loaded.config,
                Err(wrong) => panic!("{wrong}"),
            };
        let api = || Arc::clone(services) as _;
        let router = config.route.router_id.as_deref().unwrap_or_default();
        Self {
            instances: Arc::new(OpenStackInstances::new(api(), config.clone())),
            load_balancers: Arc::new(OctaviaBalancers::new(&api(), config.clone())),
            routes: Arc::new(NeutronRoutes::new(api(), router)),
        }
    }
}
