//! Several load balancer controllers in one cluster: two service-ccm with separate clouds and
//! Leases, and a controller of a third class. All have the same finalizer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::{Operation, SimCloud},
    faults::{Fault, FaultEffect},
    poll,
    program::Launch,
    served::ServedCloud,
};
use ccm_tests::{
    scenarios::{Env, SOON},
    services::{self, FINALIZER, is_protected, service},
};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::common::{add_node, deletes_orphans, quick, quickly};

/// The class of one service-ccm; the other service-ccm serves Services without a class.
const OWN: &str = "example.com/own";
/// The class that neither service-ccm serves.
const FOREIGN: &str = "example.com/foreign";
const NAMES: [&str; 4] = ["web-0", "web-1", "web-2", "web-3"];
/// The number of changes of types and classes.
const CHANGES: usize = 60;

/// A controller of the class [`FOREIGN`]: it works like upstream's.
#[derive(Clone, Default)]
struct Foreign {
    /// The UIDs of the Services with a load balancer of this controller.
    made: Arc<Mutex<BTreeSet<String>>>,
    rests: Arc<AtomicBool>,
}

impl Foreign {
    async fn run(self, env: Arc<Env>) {
        loop {
            for name in NAMES.into_iter().chain(["theirs"]) {
                // Another client was faster, or the Service is gone, which the next round finds
                // out.
                self.look(&env, name).await.ok();
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn look(&self, env: &Env, name: &str) -> Result<()> {
        let client = &env.client;
        let service = services::get(client, name).await?;
        if self.rests.load(Ordering::SeqCst) {
            return Ok(());
        }
        let metadata = &service.metadata;
        let (uid, deleting) = (metadata.uid.clone(), metadata.deletion_timestamp.is_some());
        let uid = uid.unwrap_or_default();
        let spec = service.spec.clone().unwrap_or_default();
        let asks = spec.type_.as_deref() == Some("LoadBalancer") && !deleting;
        let is_own = asks && spec.load_balancer_class.as_deref() == Some(FOREIGN);
        let with_finalizer = |is: bool| {
            let mut all = metadata.finalizers.clone().unwrap_or_default();
            all.retain(|one| one != FINALIZER);
            all.extend(is.then(|| FINALIZER.to_owned()));
            json!({"metadata": {"resourceVersion": metadata.resource_version, "finalizers": all}})
        };
        if is_own {
            if !is_protected(&service) {
                services::patch(client, name, with_finalizer(true)).await?;
            }
            self.made.lock().insert(uid);
            if services::addresses(&service).is_empty() {
                let ingress = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}});
                services::patch_status(client, name, json!({"status": ingress})).await?;
            }
        } else if self.made.lock().remove(&uid) && is_protected(&service) && !asks {
            let answer = services::patch(client, name, with_finalizer(false)).await;
            if answer.is_err() {
                self.made.lock().insert(uid);
            }
        }
        Ok(())
    }
}

/// The controllers, and the classes that Services have had.
struct World {
    env: Arc<Env>,
    /// The cloud of the service-ccm with its own class.
    own: ServedCloud,
    foreign: Foreign,
    /// The classes that each Service has had, by UID. An empty text means without a class.
    asked: BTreeMap<String, BTreeSet<String>>,
}

fn class_of(class: Option<&str>) -> String {
    class.unwrap_or_default().to_owned()
}

impl World {
    async fn create(&mut self, name: &str, class: Option<&str>) -> Result<()> {
        let mut service = service(name);
        if let Some(class) = class {
            service["spec"]["loadBalancerClass"] = json!(class);
        }
        let made = services::create(&self.env.client, &service).await?;
        let uid = made.metadata.uid.unwrap_or_default();
        self.asked.entry(uid).or_default().insert(class_of(class));
        Ok(())
    }

    /// Sets type and class. A class only changes together with the type.
    async fn change(&mut self, name: &str, kind: &str, class: Option<&str>) -> Result<()> {
        let now = services::get(&self.env.client, name).await?;
        let is_asking = now.spec.and_then(|spec| spec.type_).as_deref() == Some("LoadBalancer");
        if kind != "LoadBalancer" {
            services::patch(&self.env.client, name, json!({"spec": {"type": kind}})).await?;
            return Ok(());
        }
        if is_asking {
            let other = json!({"spec": {"type": "ClusterIP"}});
            services::patch(&self.env.client, name, other).await?;
        }
        let uid = now.metadata.uid.unwrap_or_default();
        self.asked.entry(uid).or_default().insert(class_of(class));
        let patch = json!({"spec": {"type": kind, "loadBalancerClass": class}});
        services::patch(&self.env.client, name, patch).await?;
        Ok(())
    }

    /// One random change of a random Service.
    async fn next(&mut self, dice: &mut StdRng) -> Result<()> {
        let name = NAMES[dice.random_range(0..NAMES.len())];
        let class = [None, Some(OWN), Some(FOREIGN)][dice.random_range(0..3)];
        let what = dice.random_range(0..7);
        let Ok(now) = services::get(&self.env.client, name).await else {
            return self.create(name, class).await;
        };
        let changed = match what {
            0 => services::delete(&self.env.client, name).await,
            1 => self.change(name, "ClusterIP", None).await,
            2 => self.change(name, "NodePort", None).await,
            _ => self.change(name, "LoadBalancer", class).await,
        };
        // A Service that is being deleted may be gone at any time.
        if now.metadata.deletion_timestamp.is_some() { Ok(()) } else { changed }
    }

    /// Checks that each cloud only has load balancers of Services that asked its controller.
    fn look(&self) -> Result<()> {
        for (cloud, class) in [(self.env.cloud(), ""), (self.own.cloud(), OWN)] {
            for balancer in cloud.balancers().all() {
                for owner in &balancer.owners {
                    let has_asked =
                        self.asked.get(&owner.uid).is_some_and(|classes| classes.contains(class));
                    ensure!(has_asked, "{owner} has never asked for {balancer:?}");
                }
            }
        }
        Ok(())
    }

    /// Returns what controllers can have written to this Service.
    async fn traces(&self, name: &str) -> Result<Value> {
        let service = services::get(&self.env.client, name).await?;
        let metadata = service.metadata;
        let annotations = metadata.annotations.filter(|all| !all.is_empty());
        Ok(json!([metadata.finalizers, annotations, service.status]))
    }

    async fn becomes_free(&self, name: &str) -> Result<()> {
        let client = &self.env.client;
        services::wait_for(client, name, "free", 3 * SOON, |service| !is_protected(service))
            .await?;
        services::delete(client, name).await?;
        services::gone(client, name, SOON).await
    }
}

fn is_empty(cloud: &SimCloud) -> bool {
    cloud.balancers().all().is_empty()
}

pub(crate) async fn each_controller_touches_its_own(env: Env) -> Result<()> {
    add_node(&env, "node-0").await?;
    let folder = env.path("own");
    tokio::fs::create_dir(&folder).await?;
    let own = ServedCloud::start(&folder).await?;
    // The role of the manifests only names the Lease service-ccm.
    let kubeconfig = env.cluster.kubeconfig().to_owned();
    let launch = Launch::controller("service-ccm", &kubeconfig, "external", own.config());
    let launch = quickly(launch)
        .arg("--leader-elect-resource-name=service-ccm-own")
        .arg("--allow-other-leaders")
        .arg(format!("--load-balancer-classes={OWN}"))
        .arg("--serve-classless-services=false");
    let _own = env.start(&deletes_orphans(launch)).await?;
    let _default = env.start(&deletes_orphans(quick(&env)).arg("--allow-other-leaders")).await?;
    let foreign = Foreign::default();
    let (env, mut tasks) = (Arc::new(env), JoinSet::new());
    tasks.spawn(foreign.clone().run(Arc::clone(&env)));
    let mut world = World { env, own, foreign, asked: BTreeMap::new() };
    what_is_slow_is_waited_for(&mut world).await?;
    let mut dice = StdRng::seed_from_u64(1);
    for change in 0..CHANGES {
        world.next(&mut dice).await.map_err(|error| error.context(format!("change {change}")))?;
        sleep(Duration::from_millis(dice.random_range(0..600))).await;
        world.look()?;
    }
    for name in NAMES {
        if services::get(&world.env.client, name).await.is_ok() {
            services::delete(&world.env.client, name).await?;
        }
    }
    for name in NAMES {
        if let Err(error) = services::gone(&world.env.client, name, 4 * SOON).await {
            bail!("{error}: {}", world.traces(name).await?);
        }
    }
    // If a Service is gone before a controller has seen its change of class, an orphan remains.
    let emptied = poll::until("nothing to be left in the clouds", 4 * SOON, || async {
        Ok((is_empty(world.env.cloud()) && is_empty(world.own.cloud())).then_some(()))
    });
    let left = |cloud: &SimCloud| cloud.balancers().all();
    emptied.await.with_context(|| {
        format!("left: {:?} and {:?}", left(world.env.cloud()), left(world.own.cloud()))
    })
}

/// The controller of the load balancer needs time to clean up, and the class is already gone.
async fn what_is_slow_is_waited_for(world: &mut World) -> Result<()> {
    world.create("ours", Some(OWN)).await?;
    world.create("theirs", Some(FOREIGN)).await?;
    for name in ["ours", "theirs"] {
        services::address(&world.env.client, name, SOON).await?;
    }
    let refusal = FaultEffect::Error(CloudError::new(ErrorKind::Conflict, "not now"));
    let refusal = Fault::new(refusal).on(Operation::DeleteLoadBalancers);
    world.own.cloud().faults().add(refusal.lasting(Duration::from_secs(6)));
    world.foreign.rests.store(true, Ordering::SeqCst);
    for name in ["ours", "theirs"] {
        world.change(name, "ClusterIP", None).await?;
    }
    let theirs = world.traces("theirs").await?;
    sleep(Duration::from_secs(4)).await;
    ensure!(!is_empty(world.own.cloud()), "its cloud refuses");
    let ours = services::get(&world.env.client, "ours").await?;
    ensure!(is_protected(&ours), "its load balancer exists: {ours:?}");
    ensure!(world.traces("theirs").await? == theirs, "another controller's: {theirs}");
    world.foreign.rests.store(false, Ordering::SeqCst);
    world.becomes_free("ours").await?;
    ensure!(is_empty(world.own.cloud()), "it is deleted before the finalizer goes");
    world.becomes_free("theirs").await
}
