use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::{Instances, LoadBalancers};

use super::*;

/// A provider that lacks load balancers and says why. Its settings ask for more than the cloud has.
struct Lacking {
    why: Option<&'static str>,
}

#[async_trait]
impl Cloud for Lacking {
    fn name(&self) -> &'static str {
        "lacking"
    }

    fn schemes(&self) -> Vec<String> {
        Vec::new()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Err(CloudError::new(ccm_cloud::ErrorKind::Unavailable, "not known yet"))
    }

    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        Ok(None)
    }

    fn why_not_offered(&self, capability: Capability) -> Option<String> {
        self.why.filter(|_| capability == Capability::LoadBalancers).map(str::to_owned)
    }

    fn shortfalls(&self) -> Vec<Shortfall> {
        let one =
            |text: &str| Shortfall { capability: Capability::LoadBalancers, text: text.to_owned() };
        vec![one("no groups"), one("no patterns")]
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }
}

#[test]
fn a_missing_capability_has_its_reason() {
    let required = [Need::Required(Capability::LoadBalancers)];
    for (why, needs, expect) in [
        (
            Some("[LoadBalancer] enabled is false"),
            &required[..],
            Some(
                "idle: the cloud provider lacking does not offer load-balancers: [LoadBalancer] enabled is false",
            ),
        ),
        (None, &required, Some("idle: the cloud provider lacking does not offer load-balancers")),
        (Some("x"), &[Need::Optional(Capability::LoadBalancers)], None),
        (Some("x"), &[Need::Required(Capability::Instances)], None),
    ] {
        assert_eq!(would_idle(&Lacking { why }, needs).as_deref(), expect, "{needs:?}");
    }
}

#[test]
fn shortfalls_are_shown_to_the_programs_that_need_the_capability() {
    let cloud = Lacking { why: None };
    for (need, expect) in [
        (Need::Required(Capability::LoadBalancers), Some("no groups; no patterns")),
        (Need::Optional(Capability::LoadBalancers), Some("no groups; no patterns")),
        (Need::Required(Capability::Instances), None),
    ] {
        let verdict = shortfalls(&cloud, &[need]);
        assert_eq!(verdict.is_passed(), expect.is_none(), "{need:?}: {verdict:?}");
        assert!(expect.is_none_or(|text| verdict.detail() == text), "{verdict:?}");
    }
}
