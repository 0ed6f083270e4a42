//! Asks a provider over the external protocol and prints what a controller would see.
//!
//! ```text
//! cargo run -p ccm-external --example ask -- cloud.yaml [node...]
//! ```
//!
//! `cloud.yaml` is the file of `--cloud-config`. A node is looked up by its name, or by
//! its provider ID if the text holds `://`.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::{error::Error, time::Duration};

use ccm_cloud::{Call, Detail, Lookup, NodeIdentity, ProviderContext, ProviderFactory as _};
use ccm_external::ExternalFactory;

fn call() -> Call {
    Call::waiting(Duration::from_secs(10))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let config = arguments.next().map(Into::into);
    let context = ProviderContext::ungated(config, "ask/1");
    let cloud = ExternalFactory.build(context).await?;

    println!(
        "health: {}",
        cloud.health(call()).await.map_or_else(|error| error.to_string(), |()| "ok".into())
    );
    println!("schemes: {}", cloud.schemes().join(", "));
    let Some(instances) = cloud.instances()? else {
        println!("the provider does not offer instances");
        return Ok(());
    };

    let nodes: Vec<_> = arguments.map(identity).collect();
    for (node, answer) in
        nodes.iter().zip(instances.lookup(&nodes, Detail::Everything, call()).await)
    {
        let name = node.provider_id.as_ref().unwrap_or(&node.name);
        match answer {
            Ok(Lookup::Found(instance)) => println!("{name}: found {instance:#?}"),
            Ok(Lookup::Gone(proof)) => {
                println!("{name}: gone, {:?}: {}", proof.method, proof.evidence);
            }
            Ok(Lookup::NotOurs(reason)) => println!("{name}: not ours: {reason}"),
            Err(error) => println!("{name}: not known: {error}"),
        }
    }

    let fleet = instances.list(call()).await?;
    println!("{} instances, {} malformed", fleet.instances.len(), fleet.malformed.len());
    for line in fleet.malformed {
        println!("malformed: {line}");
    }
    Ok(())
}

fn identity(text: String) -> NodeIdentity {
    let provider_id = text.contains("://").then(|| text.clone());
    NodeIdentity { provider_id, ..NodeIdentity::named(text) }
}
