//! The scenarios, which run on any cluster.

use std::{
    collections::BTreeMap,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ccm_sim::{
    cloud::{SimCloud, SimInstance},
    program::{Launch, Program},
    served::ServedCloud,
};
use k8s_openapi::api::core::v1::Node;
use kube::Client;

use crate::{
    cluster::{self, Cluster, Kind, Request},
    nodes,
};

mod bad_input;
mod cloud_faults;
mod initialise;
mod keep_true;
pub mod leadership;
mod lifecycle;
mod lifecycle_breaker;
mod lifecycle_cases;
mod lifecycle_pressure;
mod live_rates;
mod observe;
mod reference;
mod rights;
mod server_faults;

/// How long a scenario waits for what should take moments.
pub const SOON: Duration = Duration::from_secs(15);

/// The user agent that all clients of node-ccm start with.
pub const NODE_AGENT: &str = "node-ccm/";

/// The user agent that all clients of lifecycle-ccm start with.
pub const LIFECYCLE_AGENT: &str = "lifecycle-ccm/";

/// The fixture of a scenario: a cluster without nodes and a cloud without instances.
pub struct Env {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// A client with all rights.
    pub client: Client,
    /// The cloud.
    pub served: ServedCloud,
    accounts: Accounts,
    folder: tempfile::TempDir,
    mark: usize,
}

/// The kubeconfigs of programs with accounts of their own, by the program's name.
pub type Accounts = BTreeMap<&'static str, PathBuf>;

impl Env {
    /// Empties the cluster and starts a cloud. Programs use the admin's account.
    pub async fn new(cluster: Arc<Cluster>) -> Result<Self> {
        Self::with_accounts(cluster, Accounts::new()).await
    }

    /// The same; these programs use their own accounts.
    pub async fn with_accounts(cluster: Arc<Cluster>, accounts: Accounts) -> Result<Self> {
        let client = cluster.client().await?;
        cluster::clear(&client).await?;
        let folder = tempfile::Builder::new().prefix("quartet-scenario-").tempdir()?;
        let served = ServedCloud::start(folder.path()).await?;
        let mark = cluster.requests("").await?.len();
        Ok(Self { cluster, client, served, accounts, folder, mark })
    }

    /// The cloud, to fill and to break.
    pub fn cloud(&self) -> &SimCloud {
        self.served.cloud()
    }

    /// How many calls the cloud has had, those for its health left out.
    pub fn cloud_calls(&self) -> u64 {
        let calls = self.cloud().calls();
        calls.lookup + calls.list
    }

    /// A node-ccm for this cluster and cloud, with quick periods.
    pub fn node_ccm(&self) -> Launch {
        self.launch("node-ccm")
    }

    /// A lifecycle-ccm for this cluster and cloud.
    pub fn lifecycle_ccm(&self) -> Launch {
        self.launch("lifecycle-ccm")
    }

    /// The program of this name for this cluster and cloud, with its own rights where the
    /// cluster knows them.
    pub fn launch(&self, program: &str) -> Launch {
        Launch::controller(program, self.kubeconfig(program), "external", self.served.config())
    }

    fn kubeconfig(&self, program: &str) -> &Path {
        self.accounts.get(program).map_or_else(|| self.cluster.kubeconfig(), PathBuf::as_path)
    }

    /// Starts it and waits until it is ready and leads.
    pub async fn start(&self, launch: &Launch) -> Result<Program> {
        let mut program = launch.start(self.folder.path())?;
        program.ready().await?;
        program.leading(SOON).await?;
        Ok(program)
    }

    /// Starts it and waits until it is ready.
    pub async fn start_standby(&self, launch: &Launch) -> Result<Program> {
        let mut program = launch.start(self.folder.path())?;
        program.ready().await?;
        Ok(program)
    }

    /// Starts it and waits for nothing.
    pub fn start_only(&self, launch: &Launch) -> Result<Program> {
        launch.start(self.folder.path())
    }

    /// A path for a file of this scenario.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Registers a node and creates its instance.
    pub async fn add_node(&self, name: &str) -> Result<SimInstance> {
        let instance = nodes::instance(name);
        self.cloud().add(instance.clone());
        nodes::register(&self.client, &nodes::fresh(name)).await?;
        Ok(instance)
    }

    /// Registers nodes that are initialised and Ready, and creates their instances.
    pub async fn add_initialised(&self, names: &[&str]) -> Result<()> {
        for name in names {
            self.cloud().add(nodes::instance(name));
            nodes::register(&self.client, &nodes::initialised(name)).await?;
        }
        Ok(())
    }

    /// Deletes the instance of the node of this name, whose kubelet then stops reporting.
    pub async fn lose(&self, name: &str) -> Result<()> {
        self.cloud().remove(&nodes::instance(name).id).context("it has an instance")?;
        nodes::set_ready(&self.client, name, "Unknown").await
    }

    /// Waits until the node has lost its taint.
    pub async fn initialised(&self, name: &str) -> Result<Node> {
        nodes::wait_for(&self.client, name, "no longer tainted", SOON, |node| {
            !nodes::is_tainted(node)
        })
        .await
    }

    /// The API server's record of all clients with this prefix of the user agent, since the
    /// scenario began.
    pub async fn requests(&self, user_agent: &str) -> Result<Vec<Request>> {
        let all = self.cluster.requests("").await?;
        Ok(all
            .into_iter()
            .skip(self.mark)
            .filter(|request| request.user_agent.starts_with(user_agent))
            .collect())
    }

    /// Those of them that are writes to nodes.
    pub async fn node_writes(&self, user_agent: &str) -> Result<Vec<Request>> {
        let all = self.requests(user_agent).await?;
        Ok(all
            .into_iter()
            .filter(|request| request.is_write() && request.resource == "nodes")
            .collect())
    }

    /// Forgets what was recorded so far.
    pub async fn forget_requests(&mut self) -> Result<()> {
        self.mark = self.cluster.requests("").await?.len();
        Ok(())
    }
}

/// node-ccm with short terms of leadership.
pub fn quick_node(env: &Env) -> Launch {
    leadership::quick(env)
}

/// lifecycle-ccm with short terms of leadership and quick periods.
pub fn quick_lifecycle(env: &Env) -> Launch {
    leadership::with_short_terms(lifecycle::quick(env))
}

/// A scenario: its name, the clusters it makes sense on, and what it does.
pub struct Scenario {
    /// The test's name.
    pub name: &'static str,
    /// The clusters it runs on.
    pub on: &'static [Kind],
    /// The scenario's function.
    pub run: fn(Env) -> Running,
}

/// A scenario that runs.
pub type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// On either cluster. A controller has at most 12 that run on the real one.
pub const BOTH: &[Kind] = &[Kind::Simulated, Kind::Real];
/// On the simulated API server alone.
pub const SIMULATED: &[Kind] = &[Kind::Simulated];
/// On the real API server alone.
pub const REAL: &[Kind] = &[Kind::Real];

impl Scenario {
    /// Runs it.
    pub async fn run(&self, env: Env) -> Result<()> {
        (self.run)(env).await
    }
}

/// Scenarios by the clusters they run on. Names each function once: the test is called as
/// the function is.
#[macro_export]
macro_rules! scenarios {
    ($($on:ident: $($module:ident::$name:ident),+ $(,)?;)+) => {
        vec![$($($crate::scenarios::Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            on: $crate::scenarios::$on,
            run: |env| Box::pin($module::$name(env)),
        }),+),+]
    };
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let mut all = on_any_cluster();
    all.extend(on_one_cluster());
    all.extend(of_several_programs());
    all
}

fn of_several_programs() -> Vec<Scenario> {
    scenarios! {
        BOTH:
            live_rates::one_controllers_rates_change_while_it_runs,
            observe::the_leaders_steps_are_the_plan_of_node_ccm,
            observe::the_leaders_steps_are_the_plan_of_lifecycle_ccm,
            observe::nothing_is_written_beside_a_leader,
            reference::metrics_are_those_of_the_page;
    }
}

fn on_any_cluster() -> Vec<Scenario> {
    scenarios! {
        BOTH:
            initialise::a_new_node_becomes_schedulable,
            initialise::addresses_are_there_before_the_taint_goes,
            initialise::a_burst_costs_two_writes_a_node_and_few_cloud_calls,
            initialise::foreign_nodes_and_foreign_taints_are_left_alone,
            initialise::an_illegal_label_is_dropped_and_told,
            initialise::a_refused_node_ip_is_told_and_mended_by_the_user,
            initialise::kubelet_writing_at_the_same_time_does_no_harm,
            keep_true::a_changed_instance_changes_its_node,
            keep_true::a_label_edited_by_hand_is_put_back,
            keep_true::a_restart_writes_nothing_but_the_lease,
            cloud_faults::a_throttling_cloud_is_waited_for,
            cloud_faults::errors_of_the_cloud_are_told_and_survived,
            cloud_faults::a_hanging_cloud_does_not_stop_the_rest,
            cloud_faults::one_malformed_instance_does_not_stop_the_rest,
            cloud_faults::a_cloud_that_is_down_at_start_is_not_ready,
            leadership::a_released_lease_is_taken_over_at_once,
            leadership::a_killed_leader_is_replaced_within_its_lease,
            leadership::a_frozen_leader_ends_when_it_wakes,
            leadership::a_deleted_lease_does_no_harm,
            bad_input::is_refused_in_one_line,
            bad_input::several_problems_are_told_at_once,
            lifecycle::a_gone_node_leaves_within_its_confirmation_period,
            lifecycle::a_mass_outage_deletes_nobody,
            lifecycle::foreign_excluded_and_protected_nodes_stay,
            lifecycle::a_newborn_node_stays_for_its_grace_period,
            lifecycle::ghosts_go_only_while_they_are_uninitialised,
            lifecycle::the_budget_holds_the_rest,
            lifecycle::the_shutdown_taint_follows_the_machine,
            lifecycle::the_shutdown_taint_may_wait_for_the_kubelet,
            lifecycle_breaker::an_erring_cloud_deletes_nobody,
            lifecycle_breaker::a_list_that_shows_the_instance_ends_the_case,
            lifecycle_breaker::the_wrong_project_opens_the_breaker,
            lifecycle_breaker::the_breaker_closes_when_the_fleet_is_seen_again,
            lifecycle_breaker::the_operator_passes_the_breaker,
            lifecycle_cases::a_node_registered_anew_is_another_node,
            lifecycle_cases::a_node_that_comes_back_is_kept,
            lifecycle_cases::a_killed_leader_leaves_no_half_a_case,
            lifecycle_cases::a_stopped_leader_leaves_no_half_a_case,
            lifecycle_cases::the_rules_change_without_a_restart,
            lifecycle_cases::an_approval_ends_when_the_node_is_ready_again,
            lifecycle_pressure::a_held_node_costs_few_calls,
            lifecycle_pressure::an_unreadable_entry_of_the_list_is_no_absence;
    }
}

/// Those that need faults which only the simulated server has, or a real process.
fn on_one_cluster() -> Vec<Scenario> {
    scenarios! {
        SIMULATED:
            server_faults::throttled_and_broken_requests_are_repeated,
            server_faults::cut_watches_and_expired_versions_are_survived,
            server_faults::a_malformed_object_does_not_stop_the_rest,
            server_faults::an_answer_that_is_lost_after_the_write_does_no_harm,
            lifecycle_cases::a_deletion_on_its_way_does_not_hit_the_successor,
            lifecycle_cases::a_refused_deletion_is_told_and_carried_out_later,
            lifecycle_pressure::deletions_whose_answer_is_lost_stay_within_the_budget,
            lifecycle_pressure::a_conflict_about_the_taint_is_soon_forgotten,
            lifecycle_pressure::a_lowered_budget_stops_what_is_not_yet_sent,
            rights::a_missing_right_is_named_until_it_is_granted,
            rights::a_review_that_fails_harms_nobody;
        REAL:
            server_faults::a_restarted_api_server_is_survived,
            server_faults::a_frozen_api_server_ends_the_leader_and_nothing_is_lost,
            lifecycle_cases::a_deletion_names_the_very_object;
    }
}
