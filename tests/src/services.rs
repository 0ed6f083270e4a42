//! Services of type `LoadBalancer`, as a user creates them.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result};
use ccm_sim::poll;
use k8s_openapi::api::core::v1::{Event, Namespace, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// The finalizer of a Service whose load balancer has to be deleted first.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The namespace of all these Services.
pub const NAMESPACE: &str = "default";

/// Returns a Service with the TCP port 80.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": name},
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]
        }
    })
}

fn api(client: &Client) -> Api<Service> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Creates it.
pub async fn create(client: &Client, service: &Value) -> Result<Service> {
    let service = serde_json::from_value(service.clone())?;
    Ok(api(client).create(&PostParams::default(), &service).await?)
}

/// Reads it.
pub async fn get(client: &Client, name: &str) -> Result<Service> {
    Ok(api(client).get(name).await?)
}

/// Changes it by a merge patch.
pub async fn patch(client: &Client, name: &str, patch: Value) -> Result<Service> {
    Ok(api(client).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
}

/// Patches its status.
pub async fn patch_status(client: &Client, name: &str, patch: Value) -> Result<()> {
    let patch = Patch::Merge(patch);
    api(client).patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Deletes it.
pub async fn delete(client: &Client, name: &str) -> Result<()> {
    api(client).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until the Service of this name is gone.
pub async fn gone(client: &Client, name: &str, limit: Duration) -> Result<()> {
    let api = api(client);
    poll::until(&format!("Service {name} to be gone"), limit, || async {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

/// Waits until the Service is as described.
pub async fn wait_for(
    client: &Client,
    name: &str,
    what: &str,
    limit: Duration,
    is: impl Fn(&Service) -> bool,
) -> Result<Service> {
    let api = api(client);
    let found = poll::until(&format!("Service {name} to be {what}"), limit, || async {
        Ok(Some(api.get(name).await?).filter(&is))
    })
    .await;
    match found {
        Ok(service) => Ok(service),
        Err(error) => {
            let now = api.get(name).await?;
            let (finalizers, status) = (now.metadata.finalizers, now.status);
            let events = events(client, name).await?;
            Err(error).context(format!("finalizers {finalizers:?}, {status:?}, events: {events:?}"))
        }
    }
}

/// Waits until the Service shows an address, and returns it.
pub async fn address(client: &Client, name: &str, limit: Duration) -> Result<String> {
    let ready =
        wait_for(client, name, "with an address", limit, |service| !addresses(service).is_empty())
            .await?;
    addresses(&ready).pop().context("an address")
}

/// Returns the addresses in its status.
pub fn addresses(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    ingress.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone())).collect()
}

/// Status and reason of its condition of this type.
pub fn condition(service: &Service, kind: &str) -> Option<(String, String)> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    let one = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((one.status.clone(), one.reason.clone()))
}

/// Returns true if it has the finalizer.
pub fn is_protected(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

/// Returns reasons and texts of its events.
pub async fn events(client: &Client, name: &str) -> Result<BTreeSet<(String, String)>> {
    let events = Api::<Event>::namespaced(client.clone(), NAMESPACE);
    let list = events.list(&ListParams::default()).await?;
    let about = |event: &Event| {
        event.involved_object.kind.as_deref() == Some("Service")
            && event.involved_object.name.as_deref() == Some(name)
    };
    let texts = list
        .items
        .into_iter()
        .filter(about)
        .map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()));
    Ok(texts.collect())
}

/// Returns the UID of the cluster, as it is stored with load balancers.
pub async fn cluster_uid(client: &Client) -> Result<String> {
    let namespace = Api::<Namespace>::all(client.clone()).get("kube-system").await?;
    namespace.metadata.uid.context("a namespace has a UID")
}

/// Deletes the Services of all namespaces, with their finalizers.
pub async fn clear(client: &Client) -> Result<()> {
    let all = Api::<Service>::all(client.clone());
    for service in all.list_metadata(&ListParams::default()).await?.items {
        let name = service.metadata.name.unwrap_or_default();
        let namespace = service.metadata.namespace.unwrap_or_default();
        if (namespace.as_str(), name.as_str()) == ("default", "kubernetes") {
            continue;
        }
        let api = Api::<Service>::namespaced(client.clone(), &namespace);
        if service.metadata.finalizers.is_some() {
            let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            api.patch_metadata(&name, &PatchParams::default(), &none).await?;
        }
        api.delete(&name, &DeleteParams::default()).await.map(drop).or_else(
            |error| match error {
                kube::Error::Api(status) if status.code == 404 => Ok(()),
                error => Err(error),
            },
        )?;
    }
    Ok(())
}
