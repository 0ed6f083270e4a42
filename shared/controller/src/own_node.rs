//! Detects what holds up the node that runs this program.
//!
//! While a cluster comes up, the cause of trouble is often the program's own node: it is not
//! initialised yet, or `kubectl logs` cannot reach it. The result is the line `own-node` of
//! `/readyz?verbose`, and one line in the log if the problem lasts.

use std::{net::SocketAddr, time::Duration};

use ccm_kube::store::Store;
use ccm_net::{Handshake, handshake};
use ccm_objects::{Address, Node, node_keys::UNINITIALIZED};
use ccm_runtime::{
    health::{Condition, Scope},
    program::{Context, Program},
};
use tokio::time::sleep;

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time limit for the connection to the kubelet.
const CONNECT: Duration = Duration::from_secs(5);
/// The kubelet's port on a node that does not report one.
const KUBELET_PORT: u16 = 10250;

/// The cause that holds up the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum HoldUp {
    #[error("does not exist in the API server: check --node-name and the kubelet's log")]
    Unknown,
    #[error(
        "has the taint {UNINITIALIZED}: pods without a toleration do not start there until \
         node-ccm initialises it"
    )]
    Tainted,
    #[error("has no InternalIP: kubectl logs and exec fail for its pods")]
    NoAddress,
    #[error(
        "has no serving certificate: kubectl logs and exec fail for its pods until the kubelet's \
         CertificateSigningRequest is approved (kubectl get csr)"
    )]
    NoCertificate,
    #[error("cannot be reached at its kubelet's address {0}: kubectl logs and exec may fail: {1}")]
    Unreachable(SocketAddr, String),
}

/// Checks the node that `--node-name` names, in the background, until nothing holds it up.
pub fn check<P: Program>(context: &Context<P>, nodes: &Store<Node>) {
    let condition = context.health.condition("own-node", Scope::Information, "not checked yet");
    let Some(name) = context.common.borrow().node_name.clone() else {
        return condition.pass("unknown: --node-name is not set");
    };
    let watch = watch(name, nodes.clone(), condition);
    let token = context.token.clone();
    context.supervisor.spawn_job("own-node", async move {
        token.run_until_cancelled(watch).await;
    });
}

async fn watch(name: String, nodes: Store<Node>, condition: Condition) {
    let (mut last, mut reported) = (None, None);
    loop {
        let node = nodes.get(&name);
        let found = match node.as_deref().map(kubelet) {
            None => Err(HoldUp::Unknown),
            Some(Err(hold_up)) => Err(hold_up),
            Some(Ok(address)) => served(address, handshake(address, CONNECT).await),
        };
        let hold_up = match found {
            Ok(address) => {
                condition.pass(format!("node {name} is initialised; its kubelet serves {address}"));
                if reported.is_some() {
                    tracing::info!("node {name} is initialised now, and its kubelet serves");
                }
                return;
            }
            Err(hold_up) => hold_up,
        };
        let text = format!("node {name}, which runs this program, {hold_up}");
        condition.fail(&*text);
        // Most problems end before the next check.
        if last.as_ref() == Some(&hold_up) && reported.as_ref() != Some(&hold_up) {
            tracing::warn!("{text}");
            reported = Some(hold_up.clone());
        }
        last = Some(hold_up);
        sleep(INTERVAL).await;
    }
}

/// Returns the address of the kubelet of an initialised node.
fn kubelet(node: &Node) -> Result<SocketAddr, HoldUp> {
    if node.is_uninitialised() {
        return Err(HoldUp::Tainted);
    }
    let mut internal = node.addresses.iter().filter(|address| &*address.kind == "InternalIP");
    let ip = internal.find_map(Address::ip).ok_or(HoldUp::NoAddress)?;
    Ok(SocketAddr::new(ip, node.kubelet_port.unwrap_or(KUBELET_PORT)))
}

fn served(kubelet: SocketAddr, handshake: Handshake) -> Result<SocketAddr, HoldUp> {
    match handshake {
        Handshake::Done => Ok(kubelet),
        Handshake::NoCertificate => Err(HoldUp::NoCertificate),
        Handshake::Failed(why) => Err(HoldUp::Unreachable(kubelet, why)),
    }
}

#[cfg(test)]
mod tests {
    use ccm_objects::Taint;

    use super::*;

    fn node(taint: Option<&str>, addresses: &[(&str, &str)], port: Option<u16>) -> Node {
        Node {
            name: "n".into(),
            taints: taint
                .map(|key| Taint { key: key.into(), ..Taint::default() })
                .into_iter()
                .collect(),
            addresses: addresses.iter().map(|(kind, text)| Address::new(*kind, *text)).collect(),
            kubelet_port: port,
            ..Node::default()
        }
    }

    #[test]
    fn each_hold_up_is_recognised() {
        let (v4, v6) = (("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::1"));
        let at = |text: &str| Ok(text.parse().unwrap());
        for (node, expect) in [
            (node(Some(UNINITIALIZED), &[v4], None), Err(HoldUp::Tainted)),
            (node(None, &[], None), Err(HoldUp::NoAddress)),
            (
                node(None, &[("Hostname", "n"), ("ExternalIP", "192.0.2.1")], None),
                Err(HoldUp::NoAddress),
            ),
            (node(Some("example.com/other"), &[v4], None), at("10.0.0.1:10250")),
            (node(None, &[("InternalIP", "no address"), v6], Some(1)), at("[fd00::1]:1")),
        ] {
            assert_eq!(kubelet(&node), expect, "{node:?}");
        }
    }
}
