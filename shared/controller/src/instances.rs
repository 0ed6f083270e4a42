//! Queries to the cloud about the instances behind nodes: ownership, batched lookups, the
//! list of the fleet. Every call ends within its time and every answer matches its question,
//! whatever the provider does.

use std::{borrow::Cow, sync::Arc, time::Duration};

use ccm_cloud::{
    Call, Claim, Cloud, CloudError, ErrorKind, Fleet, Instances, Lookup, LookupResult, NodeIdentity,
};
use ccm_objects::Node;
use tokio::time::timeout;

/// How far a call may exceed its own time before it is cut off, for providers that ignore
/// their deadline.
const GRACE: Duration = Duration::from_secs(1);

/// The node's provider ID in the form that this cloud returns.
pub fn canonical_id<'a>(cloud: &dyn Cloud, node: &'a Node) -> Option<Cow<'a, str>> {
    node.provider_id.as_deref().map(|id| cloud.canonical_id(id))
}

/// The part of a node that is sent to the cloud.
fn identity(cloud: &dyn Cloud, node: &Node) -> NodeIdentity {
    NodeIdentity {
        name: node.name.to_string(),
        provider_id: canonical_id(cloud, node).map(Cow::into_owned),
        system_uuid: node.system_uuid.as_deref().map(str::to_owned),
    }
}

/// Whether the node belongs to this cloud; `None` while the provider does not know its own
/// schemes yet, when every node would look foreign.
pub fn claim(cloud: &dyn Cloud, node: &Node) -> Option<Claim> {
    match cloud.claim(node.provider_id.as_deref()) {
        Claim::Foreign if cloud.schemes().is_empty() => None,
        claim => Some(claim),
    }
}

/// Looks up many nodes in one call; makes no call for an empty list. Returns exactly one
/// result per node.
pub async fn lookup(cloud: &dyn Cloud, nodes: &[Arc<Node>], call: Call) -> Vec<LookupResult> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let nodes: Vec<NodeIdentity> = nodes.iter().map(|node| identity(cloud, node)).collect();
    let none = |error: CloudError| vec![Err(error); nodes.len()];
    let instances = match offered(cloud) {
        Ok(instances) => instances,
        Err(error) => return none(error),
    };
    let Ok(results) = timeout(call.timeout + GRACE, instances.lookup(&nodes, call)).await else {
        return none(late(call));
    };
    if results.len() != nodes.len() {
        // The results can no longer be matched to the nodes.
        let message = format!("{} answers to a lookup of {} nodes", results.len(), nodes.len());
        tracing::error!(provider = cloud.name(), "{message}");
        return none(CloudError::new(ErrorKind::Malformed, message));
    }
    let schemes = cloud.schemes();
    nodes.iter().zip(results).map(|(node, result)| checked(node, result, &schemes)).collect()
}

/// Rejects an instance with another ID than requested, or with another provider's ID: what
/// is written from it could not be undone.
fn checked(node: &NodeIdentity, result: LookupResult, schemes: &[String]) -> LookupResult {
    let Ok(Lookup::Found(instance)) = &result else { return result };
    let id = &instance.provider_id;
    if !schemes.is_empty() && !schemes.iter().any(|scheme| scheme == id.scheme()) {
        let message = format!(
            "the cloud answered with {id}, whose scheme is none of its own ({})",
            schemes.join(", ")
        );
        return Err(CloudError::new(ErrorKind::Malformed, message));
    }
    let means = |text: &String| {
        std::iter::once(id).chain(&instance.other_ids).any(|known| known.as_str() == text)
    };
    match &node.provider_id {
        Some(asked) if !means(asked) => {
            let message = format!("asked about {asked}, the cloud answered with {id}");
            Err(CloudError::new(ErrorKind::Malformed, message))
        }
        _ => result,
    }
}

/// Lists the fleet. Logs malformed entries in one line.
///
/// # Errors
///
/// The cloud's error, or a timeout.
pub async fn list(cloud: &dyn Cloud, call: Call) -> Result<Fleet, CloudError> {
    let instances = offered(cloud)?;
    let listed = timeout(call.timeout + GRACE, instances.list(call)).await;
    let fleet = listed.map_err(|_| late(call))??;
    if let Some(first) = fleet.malformed.first() {
        tracing::warn!(
            entries = fleet.malformed.len(),
            first,
            "entries of the cloud's list could not be understood"
        );
    }
    Ok(fleet)
}

fn offered(cloud: &dyn Cloud) -> Result<Arc<dyn Instances>, CloudError> {
    cloud.instances()?.ok_or_else(|| {
        CloudError::new(ErrorKind::Unsupported, "the provider does not offer instances")
    })
}

fn late(call: Call) -> CloudError {
    CloudError::new(
        ErrorKind::Timeout,
        format!("no answer within {} s", call.timeout.as_secs_f64()),
    )
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use ccm_cloud::{Instance, ProviderId};

    use super::*;

    /// Returns this many results whatever the request, or never answers.
    struct Odd(Option<usize>);

    #[async_trait]
    impl Instances for Odd {
        async fn lookup(&self, nodes: &[NodeIdentity], _call: Call) -> Vec<LookupResult> {
            assert!(!nodes.is_empty(), "a call that asks nothing");
            match self.0 {
                Some(count) => vec![Ok(Lookup::NotOurs("odd".to_owned())); count],
                None => std::future::pending().await,
            }
        }

        async fn list(&self, _call: Call) -> Result<Fleet, CloudError> {
            std::future::pending().await
        }
    }

    /// Knows no schemes yet and lower-cases its IDs; offers [`Odd`], or no instances.
    struct OddCloud(Option<Arc<Odd>>);

    #[async_trait]
    impl Cloud for OddCloud {
        fn name(&self) -> &'static str {
            "odd"
        }

        fn schemes(&self) -> Vec<String> {
            Vec::new()
        }

        fn canonical_id<'a>(&self, provider_id: &'a str) -> Cow<'a, str> {
            provider_id.to_lowercase().into()
        }

        fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
            Ok(self.0.clone().map(|odd| odd as Arc<dyn Instances>))
        }

        async fn health(&self, _call: Call) -> Result<(), CloudError> {
            Ok(())
        }
    }

    fn node(provider_id: &str) -> Node {
        Node {
            name: "node-1".into(),
            provider_id: Some(provider_id.into()),
            system_uuid: Some("uuid".into()),
            ..Node::default()
        }
    }

    #[test]
    fn the_cloud_is_told_who_a_node_is() {
        let expect = NodeIdentity {
            name: "node-1".to_owned(),
            provider_id: Some("sim://i-1".to_owned()),
            system_uuid: Some("uuid".to_owned()),
        };
        assert_eq!(identity(&OddCloud(None), &node("sim://I-1")), expect);
    }

    #[test]
    fn nobody_is_foreign_to_a_provider_that_does_not_know_itself() {
        assert_eq!(claim(&OddCloud(None), &node("sim://i-1")), None);
        assert_eq!(claim(&OddCloud(None), &Node::default()), Some(Claim::Unclaimed));
    }

    #[test]
    fn an_answer_about_another_machine_is_none() {
        let schemes = ["sim".to_owned()];
        for (asked, answered, other, expect) in [
            (Some("sim://a"), "sim://a", None, None),
            (Some("sim:///a"), "sim://a", Some("sim:///a"), None),
            (None, "sim://a", None, None),
            (
                Some("sim://a"),
                "sim://b",
                None,
                Some("asked about sim://a, the cloud answered with sim://b"),
            ),
            (
                None,
                "aws://a",
                None,
                Some("the cloud answered with aws://a, whose scheme is none of its own (sim)"),
            ),
        ] {
            let id = |text: &str| ProviderId::parse(text).unwrap();
            let mut instance = Instance::new(id(answered), "a");
            instance.other_ids = other.map(id).into_iter().collect();
            let node = NodeIdentity {
                name: "a".to_owned(),
                provider_id: asked.map(str::to_owned),
                system_uuid: None,
            };
            let got = checked(&node, Ok(Lookup::Found(Box::new(instance))), &schemes);
            assert_eq!(got.err().map(|error| error.message), expect.map(str::to_owned));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_one_answer_a_node_whatever_the_provider_does() {
        let nodes = ["sim://i-1", "sim://i-2"].map(|id| Arc::new(node(id)));
        for (odd, expect) in [
            (Some(Odd(Some(1))), ErrorKind::Malformed),
            (Some(Odd(Some(3))), ErrorKind::Malformed),
            (Some(Odd(None)), ErrorKind::Timeout),
            (None, ErrorKind::Unsupported),
        ] {
            let cloud = OddCloud(odd.map(Arc::new));
            let call = Call::routine(Duration::from_secs(3));
            let kinds: Vec<_> = lookup(&cloud, &nodes, call)
                .await
                .into_iter()
                .map(|answer| answer.map_err(|error| error.kind))
                .collect();
            assert_eq!(kinds, [Err(expect), Err(expect)]);
            assert_eq!(lookup(&cloud, &[], call).await, []);
        }
        let hangs = OddCloud(Some(Arc::new(Odd(None))));
        let listed = list(&hangs, Call::routine(Duration::from_secs(3))).await;
        assert_eq!(listed.unwrap_err().kind, ErrorKind::Timeout);
    }
}
