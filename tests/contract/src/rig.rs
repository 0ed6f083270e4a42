//! The abilities that a cloud under test needs besides answering its provider.

use std::{net::IpAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_cloud::{Cloud, CloudError, Cure, Protocol, RouteTarget, Wanted};
use ipnet::IpNet;

/// A need of a case that some clouds cannot meet. A stage makes a rig that meets the named needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The provider's own `Cloud`, and not only its capabilities.
    WholeCloud,
    /// One load balancer needs several writes until it is complete.
    Steps,
    /// The cloud refuses writes of a former term, and a second load balancer of one owner.
    Fences,
    /// Two processes can each make a load balancer for one owner.
    Twins,
    /// Another process does not see the port of a load balancer's members while it does not have
    /// any.
    HidesEmptyPools,
    /// [`Wish::Elsewhere`] makes another controller responsible.
    OtherControllers,
    /// Load balancers of a cluster with the same name, before it was rebuilt, can be adopted.
    Rebuilt,
    /// A load balancer can fail so that only a person repairs it.
    FailsForGood,
    /// A destination of routes may have several targets.
    SeveralTargets,
    /// The cloud records the owner of a route.
    RouteOwners,
    /// The table of routes has a version, and a change is compared with it.
    TableVersions,
}

/// One way to a cloud: makes the rigs of the cases.
#[async_trait]
pub trait Stage: Send + Sync {
    /// Returns the beginning of the names of its tests: `openstack`.
    fn name(&self) -> &str;

    /// Returns why a rig of this stage cannot have this; `None` if it can.
    fn lacks(&self, need: Need) -> Option<&'static str>;

    /// Returns a new cloud without anything in it, which has these.
    async fn rig(&self, needs: &[Need]) -> Box<dyn Rig>;

    /// Returns true if the case waits only for the test's own tasks: then waiting does not take
    /// time.
    fn is_paused(&self) -> bool {
        false
    }
}

/// The cloud's own side: what happens in it without the provider, and what it has received.
pub trait Rig: Send + Sync {
    /// Returns the provider in a new process, which remembers nothing.
    fn process(&self) -> Arc<dyn Cloud>;

    /// Loses the answer to each write from now on. The write is carried out.
    fn lose_answers(&self, lost: bool);

    /// Refuses each request with this error from now on. The request has no effect.
    fn refuse(&self, error: Option<CloudError>);

    /// Delays each answer by this time from now on.
    fn slow(&self, time: Duration);

    /// Sets the term of leadership of later writes. Only with [`Need::Fences`].
    fn lead(&self, _term: u64) {}

    /// Returns the machines.
    fn machines(&self) -> &dyn MachineSide;

    /// Returns the load balancers.
    fn balancers(&self) -> &dyn BalancerSide;

    /// Returns the router.
    fn router(&self) -> &dyn RouterSide;
}

/// The machines of a cloud under test.
pub trait MachineSide: Send + Sync {
    /// Builds the machine with this number, `node-00042`, with addresses.
    fn build(&self, number: usize);

    /// Returns the provider ID of the machine with this number, also if it does not exist.
    fn id(&self, number: usize) -> String;

    /// Returns another spelling of this ID.
    fn other_id(&self, number: usize) -> String;

    /// Returns the system UUID of the machine with this number, also if it does not exist.
    fn uuid(&self, number: usize) -> String;

    /// Gives a machine another name.
    fn rename(&self, number: usize, name: &str);

    /// Hides all machines from lists from now on.
    fn hide(&self, hidden: bool);

    /// Makes the cloud's data about this machine unreadable.
    fn spoil(&self, number: usize);
}

/// A load balancer in the cloud's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The UIDs of the Services of the suite's cluster that are recorded as its owners.
    pub owners: Vec<String>,
    /// Its own addresses, without floating ones.
    pub addresses: Vec<IpAddr>,
    /// The ports that it listens on, in order.
    pub ports: Vec<(Protocol, u16)>,
    /// The names of the nodes behind each port, in order.
    pub nodes: Vec<String>,
    /// Everything else, which writes of owners, members or a digest must not change.
    pub rest: String,
}

/// A wish that a Service may express by an annotation of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// An address that is a separate object, and outlives a load balancer that others delete.
    Floating,
    /// Only the load balancer's own address.
    Internal,
    /// The floating address stays when the load balancer is deleted.
    Keep,
    /// Something that does not exist.
    Wrong,
    /// Another controller.
    Elsewhere,
}

/// The owner of a load balancer that the case did not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// A person's.
    Person,
    /// Made by another controller for the Service of this name in `default` of this cluster.
    Older(&'a str),
    /// The load balancer of the Service with this name in a cluster of the same name.
    Namesake(&'a str),
    /// The load balancer of another Service of this cluster.
    Neighbour(&'a str),
    /// The load balancer of two Services of this cluster.
    Shared(&'a str, &'a str),
}

/// A person's damage to a load balancer that matches its Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Deletes a listener.
    Listener,
    /// Deletes all members of a pool, or of all of them.
    Members,
    /// Deletes a pool.
    Pool,
    /// Deletes the floating address.
    Floating,
}

/// The number of writes that the cloud has accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Writes to load balancers and to what they consist of.
    pub balancers: usize,
    /// Changes of floating addresses, if they are separate writes.
    pub floating: usize,
}

impl Written {
    /// Returns the number of all writes.
    pub fn total(self) -> usize {
        self.balancers + self.floating
    }
}

/// The load balancers of a cloud under test.
pub trait BalancerSide: Send + Sync {
    /// Returns the annotation for this wish, or `None` if each Service has that without an
    /// annotation.
    fn annotation(&self, wish: Wish) -> Option<(&'static str, &'static str)>;

    /// Returns other configurations of the same Service, by annotations of the provider.
    fn variants(&self, _wanted: &Wanted) -> Vec<Wanted> {
        Vec::new()
    }

    /// Returns a floating address that the cloud gives to a Service that asks for it.
    fn choice(&self) -> IpAddr;

    /// Returns all load balancers, by age.
    fn rows(&self) -> Vec<Row>;

    /// Returns all floating addresses, and whether a load balancer has them.
    fn floating(&self) -> Vec<(IpAddr, bool)>;

    /// Returns the writes since the last call of this.
    fn written(&self) -> Written;

    /// Adds a load balancer, and returns its ID.
    fn stranger(&self, whose: Whose<'_>) -> String;

    /// Deletes a load balancer, as a person does. Its floating address stays.
    fn remove(&self, id: &str);

    /// Returns the damage that a person can do to a load balancer.
    fn harms(&self) -> &'static [Harm];

    /// Does this damage, as a person does.
    fn harm(&self, id: &str, harm: Harm);

    /// Replaces the record of this load balancer by the record of another controller, with names
    /// and without UIDs, or with [`Need::Rebuilt`] of a cluster of the same name.
    fn disown(&self, id: &str, rebuilt: bool);

    /// Removes the digest, as a person does.
    fn drop_digest(&self, id: &str);

    /// Makes the load balancer fail. [`Cure::Person`] only with [`Need::FailsForGood`].
    fn break_down(&self, id: &str, cure: Cure);

    /// Makes the cloud work on later writes without end, or ends this work.
    fn hold(&self, held: bool);

    /// Makes the row of this load balancer unreadable from now on.
    fn spoil(&self, id: &str, spoilt: bool);

    /// Hides all load balancers from lists from now on.
    fn hide(&self, hidden: bool);
}

/// The router of a cloud under test. Machines with the addresses 10.0.0.1 to 10.0.0.9 are on its network.
pub trait RouterSide: Send + Sync {
    /// Returns the table in the cloud's own words, by destination.
    fn table(&self) -> Vec<(IpNet, RouteTarget)>;

    /// Adds a route as a person does, even if the destination has one.
    fn add(&self, destination: IpNet, target: RouteTarget);

    /// Gives the routes of a destination another target, as a person does.
    fn retarget(&self, destination: IpNet, target: RouteTarget);

    /// Returns how many requests have changed the table since the last call of this function.
    fn written(&self) -> usize;

    /// Limits the table to this many routes from now on.
    fn limit(&self, most: usize);

    /// Prevents new routes from carrying traffic from now on, until they are created again later.
    fn break_new(&self, broken: bool);

    /// Deletes all machines and everything else that has an address.
    fn clear_targets(&self);
}
