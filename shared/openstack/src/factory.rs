//! Builds the cloud from `--cloud-config`.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::{Cloud, CloudError, ErrorKind, MetricsSink, ProviderContext, ProviderFactory};
use ccm_openstack_client::{api::Clients, metrics::OpenStackMetrics};

use crate::{
    NAME,
    cloud::OpenStackCloud,
    reload::{self, Source},
    resolve,
};

/// Builds the provider `openstack` without a request: while Keystone is down, calls fail and
/// are retried. Invalid settings are an error of kind [`ErrorKind::Invalid`].
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenStackFactory;

#[async_trait]
impl ProviderFactory for OpenStackFactory {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError> {
        let path = context.config.ok_or_else(|| {
            CloudError::new(
                ErrorKind::Invalid,
                "--cloud-config: not set; it must be the path of a cloud.conf",
            )
        })?;
        let mut source = Source::new(path);
        let loaded = source.load().await?;
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let metrics = OpenStackMetrics::default();
        let clients = Clients::new(context.gate, metrics.clone(), &context.user_agent);
        let cloud = Arc::new(OpenStackCloud::new(clients, &loaded.config)?);
        context.metrics.add(&mut |registry| metrics.register(registry));
        cloud.keep(resolve::run(Arc::downgrade(&cloud)));
        cloud.keep(reload::run(source, Arc::downgrade(&cloud), metrics));
        Ok(cloud)
    }

    fn specimens(&self, sink: &dyn MetricsSink) {
        OpenStackMetrics::new(sink).specimens();
    }
}
