//! Asks the cloud about the instances behind nodes: ownership, batched lookups, the list of the
//! fleet. Every call ends within its time and every answer matches its question, even
//! if the provider breaks the contract.

mod answer;
mod listing;

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::{
    Call, Claim, Cloud, CloudError, Detail, ErrorKind, Fleet, Instance, InstanceTraits, Instances,
    Lookup, LookupResult, NodeAddress, NodeIdentity, ProviderId, Wants,
};
use ccm_objects::Node;
use futures::StreamExt as _;
use tokio::time::timeout_at;

pub use self::{answer::LookupOutcome, listing::unlisted};

/// How far a call may exceed its own time before it is cut off, for providers that ignore
/// their deadline.
const GRACE: Duration = Duration::from_secs(1);

/// Returns the node's provider ID in the form that this cloud returns.
pub fn canonical_id<'a>(cloud: &dyn Cloud, node: &'a Node) -> Option<Cow<'a, str>> {
    node.provider_id.as_deref().map(|id| cloud.canonical_id(id))
}

/// Returns true if the node's provider ID is this instance's, in any of its spellings.
pub fn has_id_of(cloud: &dyn Cloud, node: &Node, instance: &Instance) -> bool {
    let Some(own) = node.provider_id.as_deref() else { return false };
    let ids = || std::iter::once(&instance.provider_id).chain(&instance.other_ids);
    // Most nodes have other IDs, so the provider is asked only about the few with the same end.
    let ends_alike = |id: &ProviderId| {
        let end = id.as_str().rsplit(['/', ':']).next().unwrap_or_default();
        let start = own.len().checked_sub(end.len());
        start.and_then(|at| own.get(at..)).is_some_and(|own| own.eq_ignore_ascii_case(end))
    };
    ids().any(ends_alike) && {
        let own = cloud.canonical_id(own);
        ids().any(|id| id.as_str() == own)
    }
}

/// Returns the part of a node that is sent to the cloud.
fn identity(cloud: &dyn Cloud, node: &Node, wants: Wants) -> NodeIdentity {
    let labels = node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let addresses = node.addresses.iter().filter_map(|address| {
        Some(NodeAddress::new(address.kind.parse().ok()?, &*address.address))
    });
    NodeIdentity {
        name: node.name.to_string(),
        provider_id: canonical_id(cloud, node).map(Cow::into_owned),
        system_uuid: node.system_uuid.as_deref().map(str::to_owned),
        uid: wants.uid.then(|| node.uid.to_string()),
        labels: labels.filter(|_| wants.labels).collect(),
        addresses: addresses.filter(|_| wants.addresses).collect(),
    }
}

/// Returns the provider's claim to the node. Returns `None` while the provider does not know its
/// own schemes yet, because then every node would look foreign.
pub fn claim(cloud: &dyn Cloud, node: &Node) -> Option<Claim> {
    match cloud.claim(node.provider_id.as_deref()) {
        Claim::Foreign if cloud.schemes().is_empty() => None,
        claim => Some(claim),
    }
}

/// Returns true if the node may belong to this cloud, and `None` while this is unknown.
pub fn is_ours(cloud: &dyn Cloud, node: &Node) -> Option<bool> {
    claim(cloud, node).map(|claim| claim != Claim::Foreign)
}

/// Returns why a program does nothing for this node: `--node-selector` does not select it, or it
/// belongs to another provider.
pub fn why_left_out(cloud: &dyn Cloud, node: &Node, is_selected: bool) -> String {
    if !is_selected {
        return "--node-selector does not select it".to_owned();
    }
    let id = node.provider_id.as_deref().unwrap_or_default();
    format!("provider ID {id} {}", cloud.why_foreign(id))
}

/// Looks up many nodes in one call; makes no call for an empty list. Returns exactly one
/// result per node.
pub async fn lookup(
    cloud: &dyn Cloud,
    nodes: &[Arc<Node>],
    detail: Detail,
    call: Call,
) -> Vec<LookupResult> {
    let mut answers = vec![Err(call.late()); nodes.len()];
    let collect = |place: usize, answer| {
        if let Some(slot) = answers.get_mut(place) {
            *slot = answer;
        }
    };
    lookup_each(cloud, nodes, detail, call, collect).await;
    answers
}

/// Looks up nodes like [`lookup`], but delivers each result as soon as it arrives: `answered` is
/// called once per node with its index. A result that misses the call's deadline is an error of
/// that node alone.
pub async fn lookup_each(
    cloud: &dyn Cloud,
    nodes: &[Arc<Node>],
    detail: Detail,
    call: Call,
    mut answered: impl FnMut(usize, LookupResult),
) {
    if nodes.is_empty() {
        return;
    }
    let mut left: BTreeSet<usize> = (0..nodes.len()).collect();
    let ask = async {
        let instances = offered(cloud)?;
        let wants = instances.traits().wants;
        let questions: Vec<NodeIdentity> =
            nodes.iter().map(|node| identity(cloud, node, wants)).collect();
        let mut answers = instances.lookup_each(&questions, detail, call);
        while let Some((place, answer)) = answers.next().await {
            if let Some(question) = questions.get(place).filter(|_| left.remove(&place)) {
                answered(place, checked(question, answer, &cloud.schemes()));
            }
        }
        Err(CloudError::new(ErrorKind::Malformed, "the provider returned no answer for this node"))
    };
    let ended = timeout_at(call.end + GRACE, ask).await;
    let missing = ended.unwrap_or_else(|_| Err::<(), _>(call.late()));
    if let Err(error) = missing {
        for place in left {
            answered(place, Err(error.clone()));
        }
    }
}

/// Rejects an instance with another ID than requested, or with a scheme that the provider
/// does not name as its own: what is written from it could not be undone.
fn checked(node: &NodeIdentity, result: LookupResult, schemes: &[String]) -> LookupResult {
    let Ok(Lookup::Found(instance)) = &result else { return result };
    let id = &instance.provider_id;
    if !schemes.iter().any(|scheme| scheme == id.scheme()) {
        let message = format!(
            "the cloud returned {id}, which has no scheme of this provider ({})",
            schemes.join(", ")
        );
        return Err(CloudError::new(ErrorKind::Malformed, message));
    }
    let means = |text: &String| {
        std::iter::once(id).chain(&instance.other_ids).any(|known| known.as_str() == text)
    };
    match &node.provider_id {
        Some(asked) if !means(asked) => {
            let message = format!("the lookup of {asked:?} returned {id}");
            Err(CloudError::new(ErrorKind::Malformed, message))
        }
        _ => result,
    }
}

/// Returns the traits of the cloud's instances, or the default while they are unknown.
pub fn traits(cloud: &dyn Cloud) -> InstanceTraits {
    offered(cloud).map(|instances| instances.traits()).unwrap_or_default()
}

/// Lists the fleet. Logs malformed entries in one line.
///
/// # Errors
///
/// The cloud's error, a timeout, or `Unsupported` if the cloud has no list.
pub async fn list(cloud: &dyn Cloud, call: Call) -> Result<Fleet, CloudError> {
    let instances = offered(cloud)?;
    if !instances.traits().lists {
        let what = "the provider cannot list instances";
        return Err(CloudError::new(ErrorKind::Unsupported, what));
    }
    let listed = timeout_at(call.end + GRACE, instances.list(call)).await;
    let fleet = listed.map_err(|_| call.late())??;
    if let Some(first) = fleet.malformed.first() {
        tracing::warn!(
            entries = fleet.malformed.len(),
            first,
            "entries of the cloud's list could not be parsed"
        );
    }
    Ok(fleet)
}

fn offered(cloud: &dyn Cloud) -> Result<Arc<dyn Instances>, CloudError> {
    cloud.instances()?.ok_or_else(|| {
        CloudError::new(ErrorKind::Unsupported, "the provider does not offer instances")
    })
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use ccm_cloud::Answers;
    use futures::stream;
    use tokio::time::Instant;

    use super::*;

    /// Returns this many results for any request, or never answers.
    struct Odd(Option<usize>);

    #[async_trait]
    impl Instances for Odd {
        async fn lookup(&self, nodes: &[NodeIdentity], _: Detail, _: Call) -> Vec<LookupResult> {
            assert!(!nodes.is_empty(), "a call that asks nothing");
            match self.0 {
                Some(count) => vec![Ok(Lookup::NotOurs("odd".to_owned())); count],
                None => std::future::pending().await,
            }
        }

        async fn list(&self, _: Call) -> Result<Fleet, CloudError> {
            std::future::pending().await
        }
    }

    /// A cloud that does not know its schemes yet and lower-cases its IDs. It offers [`Odd`], or no
    /// instances.
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
    fn the_cloud_gets_the_identity_of_a_node() {
        let expect = NodeIdentity {
            name: "node-1".to_owned(),
            provider_id: Some("sim://i-1".to_owned()),
            system_uuid: Some("uuid".to_owned()),
            ..NodeIdentity::default()
        };
        assert_eq!(identity(&OddCloud(None), &node("sim://I-1"), Wants::default()), expect);
    }

    #[test]
    fn a_node_is_left_out_by_the_selector_or_by_its_id() {
        let why = |is_selected| why_left_out(&OddCloud(None), &node("k3s://a"), is_selected);
        assert_eq!(why(false), "--node-selector does not select it");
        assert_eq!(why(true), "provider ID k3s://a has no scheme of this provider ()");
    }

    #[test]
    fn a_node_of_an_instance_has_one_of_its_ids_in_any_spelling() {
        let id = |text: &str| ProviderId::parse(text).unwrap();
        let mut instance = Instance::new(id("sim://i-1"), "a");
        instance.other_ids = vec![id("sim://region/i-1")];
        let has = |own: &str| has_id_of(&OddCloud(None), &node(own), &instance);
        assert!(["sim://i-1", "SIM://I-1", "sim://region/i-1"].into_iter().all(has));
        assert!(!["sim://i-2", "sim://other/i-1", "sim:i-1"].into_iter().any(has));
        assert!(!has_id_of(&OddCloud(None), &Node::default(), &instance));
    }

    #[test]
    fn no_node_is_foreign_while_the_provider_does_not_know_its_schemes() {
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
            (Some("sim://a"), "sim://b", None, Some("the lookup of \"sim://a\" returned sim://b")),
            (
                None,
                "aws://a",
                None,
                Some("the cloud returned aws://a, which has no scheme of this provider (sim)"),
            ),
        ] {
            let id = |text: &str| ProviderId::parse(text).unwrap();
            let mut instance = Instance::new(id(answered), "a");
            instance.other_ids = other.map(id).into_iter().collect();
            let node = NodeIdentity {
                name: "a".to_owned(),
                provider_id: asked.map(str::to_owned),
                ..NodeIdentity::default()
            };
            let found = || Ok(Lookup::Found(Box::new(instance.clone())));
            let unnamed = checked(&node, found(), &[]).unwrap_err();
            assert_eq!(unnamed.kind, ErrorKind::Malformed, "no scheme is the provider's");
            let got = checked(&node, found(), &schemes);
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
            let kinds: Vec<_> = lookup(&cloud, &nodes, Detail::Everything, call)
                .await
                .into_iter()
                .map(|answer| answer.map_err(|error| error.kind))
                .collect();
            assert_eq!(kinds, [Err(expect), Err(expect)]);
            assert_eq!(lookup(&cloud, &[], Detail::Everything, call).await, []);
        }
        let hangs = OddCloud(Some(Arc::new(Odd(None))));
        let listed = list(&hangs, Call::routine(Duration::from_secs(3))).await;
        assert_eq!(listed.unwrap_err().kind, ErrorKind::Timeout);
    }

    /// Answers all lookups except the second one, which is never answered.
    struct Stuck;

    #[async_trait]
    impl Instances for Stuck {
        async fn lookup(&self, _: &[NodeIdentity], _: Detail, _: Call) -> Vec<LookupResult> {
            std::future::pending().await
        }

        fn lookup_each<'a>(
            &'a self,
            nodes: &'a [NodeIdentity],
            _: Detail,
            _: Call,
        ) -> Answers<'a, Lookup> {
            let known = (0..nodes.len()).rev().filter(|place| *place != 1);
            let answers = known.map(|place| (place, Ok(Lookup::NotOurs("stuck".to_owned()))));
            stream::iter(answers.chain([(7, Err(Call::routine(GRACE).late()))]))
                .chain(stream::pending())
                .boxed()
        }
    }

    struct StuckCloud;

    #[async_trait]
    impl Cloud for StuckCloud {
        fn name(&self) -> &'static str {
            "stuck"
        }

        fn schemes(&self) -> Vec<String> {
            vec!["sim".to_owned()]
        }

        fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
            Ok(Some(Arc::new(Stuck)))
        }

        async fn health(&self, _call: Call) -> Result<(), CloudError> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_never_answered_delays_no_other() {
        let nodes = ["sim://i-1", "sim://i-2", "sim://i-3"].map(|id| Arc::new(node(id)));
        let (call, began) = (Call::routine(Duration::from_secs(3)), Instant::now());
        let mut seen = Vec::new();
        let note = |place, answer: LookupResult| {
            seen.push((place, began.elapsed().as_secs(), answer.map_err(|error| error.kind)));
        };
        lookup_each(&StuckCloud, &nodes, Detail::Everything, call, note).await;
        let answer = || Ok(Lookup::NotOurs("stuck".to_owned()));
        assert_eq!(seen, [(2, 0, answer()), (0, 0, answer()), (1, 4, Err(ErrorKind::Timeout))]);
        let all = lookup(&StuckCloud, &nodes, Detail::Everything, call).await;
        assert_eq!(all.iter().filter(|answer| answer.is_ok()).count(), 2);
    }

    #[test]
    fn a_provider_gets_the_fields_that_it_wants() {
        let node = Node {
            uid: "uid".into(),
            labels: [("a".into(), "b".into())].into(),
            addresses: vec![
                ccm_objects::Address { kind: "InternalIP".into(), address: "10.0.0.1".into() },
                ccm_objects::Address { kind: "Odd".into(), address: "x".into() },
            ],
            ..node("sim://i-1")
        };
        let sent = identity(&OddCloud(None), &node, Wants { uid: true, ..Wants::default() });
        assert_eq!(
            (sent.uid.as_deref(), sent.labels.len(), sent.addresses.len()),
            (Some("uid"), 0, 0)
        );
        let wants = Wants { labels: true, addresses: true, uid: false };
        let sent = identity(&OddCloud(None), &node, wants);
        assert_eq!((sent.uid, sent.labels.len(), sent.addresses.len()), (None, 1, 1));
    }
}
