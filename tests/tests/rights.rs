//! Each program with exactly the rights that its manifests grant, on a real API server.
//!
//! What the roles say is compared with what the code says in any case. The rest runs with
//! `QUARTET_CLUSTER=real` only: scenarios of each program as its own service account (all
//! of them with `QUARTET_RIGHTS=all`), and then one right after another taken away, each of
//! which must be missed.

use std::{collections::BTreeMap, env, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ccm_tests::{
    cluster::{Cluster, Kind, repository},
    rights::{
        PROGRAMS,
        account::Account,
        manifest::{Grant, Manifest},
        needed_by, removal,
    },
    scenarios::{self, Env, Scenario},
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::{runtime::Runtime, sync::OnceCell};

/// The scenarios that run without `QUARTET_RIGHTS=all`: between them the programs do
/// everything that they can do, start and end in every way, and take over from each other.
const SELECTED: [&str; 11] = [
    "initialise::a_new_node_becomes_schedulable",
    "initialise::a_burst_costs_two_writes_a_node_and_few_cloud_calls",
    "keep_true::a_restart_writes_nothing_but_the_lease",
    "leadership::a_released_lease_is_taken_over_at_once",
    "leadership::a_killed_leader_is_replaced_within_its_lease",
    "leadership::a_deleted_lease_does_no_harm",
    "server_faults::a_restarted_api_server_is_survived",
    "lifecycle::foreign_excluded_and_protected_nodes_stay",
    "lifecycle::the_shutdown_taint_follows_the_machine",
    "lifecycle_cases::a_stopped_leader_leaves_no_half_a_case",
    "lifecycle_cases::an_approval_ends_when_the_node_is_ready_again",
];

/// No trial may take longer: one that hangs is a failure with a name.
const LIMIT: Duration = Duration::from_mins(3);

/// The cluster and the programs' accounts, made by the first trial that needs them.
struct Stage {
    cluster: Arc<Cluster>,
    accounts: Vec<Account>,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn set() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("quartet-rights-").tempdir()?;
        let cluster = Arc::new(Cluster::start(Kind::Real).await?);
        let mut accounts = Vec::new();
        for program in PROGRAMS {
            accounts.push(Account::create(cluster.clone(), program, folder.path()).await?);
        }
        Ok(Self { cluster, accounts, _folder: folder })
    }

    /// A clear cluster where the programs are who their manifests make them, with all the
    /// rights that those grant.
    async fn env(&self) -> Result<Env> {
        let kubeconfig =
            |account: &Account| (account.program(), account.kubeconfig().to_path_buf());
        let accounts: BTreeMap<_, _> = self.accounts.iter().map(kubeconfig).collect();
        for account in &self.accounts {
            account.restore().await?;
        }
        Env::with_accounts(self.cluster.clone(), accounts).await
    }

    fn account(&self, program: &str) -> Result<&Account> {
        let found = self.accounts.iter().find(|account| account.program() == program);
        found.with_context(|| format!("{program} has no manifests"))
    }
}

/// What the trials share.
#[derive(Clone)]
struct Shared {
    runtime: Arc<Runtime>,
    stage: Arc<OnceCell<Stage>>,
}

impl Shared {
    fn trial<F>(&self, name: String, run: F) -> Trial
    where
        F: AsyncFnOnce(&Stage) -> Result<()> + Send + 'static,
    {
        let Self { runtime, stage } = self.clone();
        Trial::test(name, move || {
            let run = async {
                let stage = stage.get_or_try_init(Stage::set).await?;
                tokio::time::timeout(LIMIT, run(stage)).await.context("still running")?
            };
            runtime.block_on(run).map_err(|error| Failed::from(format!("{error:?}")))
        })
    }
}

fn main() -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let known: Vec<_> = scenarios::all().iter().map(|scenario| scenario.name).collect();
    for name in SELECTED {
        ensure!(known.contains(&name), "there is no scenario {name}");
    }
    let mut trials: Vec<_> = PROGRAMS.into_iter().map(roles_are_what_the_code_needs).collect();
    if env::var("QUARTET_CLUSTER").is_ok_and(|kind| kind == "real") {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let shared = Shared { runtime: Arc::new(runtime), stage: Arc::default() };
        for program in PROGRAMS {
            trials.extend(on_real_api_server(&shared, program)?);
        }
        let conclusion = libtest_mimic::run(&arguments, trials);
        let stage = Arc::into_inner(shared.stage).and_then(OnceCell::into_inner);
        if let Some(cluster) = stage.and_then(|stage| Arc::into_inner(stage.cluster)) {
            shared.runtime.block_on(cluster.stop())?;
        }
        return Ok(conclusion.exit_code());
    }
    eprintln!("programs with their own roles: skipped; `make test-rights` runs them");
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

fn roles_are_what_the_code_needs(program: &'static str) -> Trial {
    Trial::test(format!("{program}::roles_are_what_the_code_needs"), move || {
        let compare = || {
            let (granted, needed) = (Manifest::source(program)?.grants()?, needed_by(program)?);
            let only = |these: Vec<&Grant>| {
                these.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            };
            let more = only(granted.difference(&needed).collect());
            ensure!(more.is_empty(), "the manifests grant what the code does not ask for: {more}");
            let less = only(needed.difference(&granted).collect());
            ensure!(less.is_empty(), "the manifests lack what the code asks for: {less}");
            let page = std::fs::read_to_string(repository().join("docs/security.md"))?;
            let told = |grant: &Grant| {
                page.contains(&format!("`{}`", grant.to_string().replace(program, "<program>")))
            };
            let untold = only(granted.iter().filter(|grant| !told(grant)).collect());
            ensure!(untold.is_empty(), "docs/security.md does not say why: {untold}");
            Ok(())
        };
        compare().map_err(|error| Failed::from(format!("{error:?}")))
    })
}

fn on_real_api_server(shared: &Shared, program: &'static str) -> Result<Vec<Trial>> {
    let all = env::var("QUARTET_RIGHTS").is_ok_and(|which| which == "all");
    let of_program = |scenario: &Scenario| {
        // What needs no API server needs no rights.
        let needs_rights =
            scenario.on.contains(&Kind::Real) && !scenario.name.starts_with("bad_input");
        needs_rights && scenario.program() == program && (all || SELECTED.contains(&scenario.name))
    };
    let mut trials = vec![shared.trial(format!("{program}::may_nothing_else"), async |stage| {
        may_nothing_else(stage.account(program)?).await
    })];
    for scenario in scenarios::all().into_iter().filter(of_program) {
        let name = format!("{program}::as_itself::{}", scenario.name);
        trials.push(shared.trial(name, async move |stage| scenario.run(stage.env().await?).await));
    }
    let grants = Manifest::source(program)?.grants()?;
    for grant in &grants {
        let (name, grant) = (format!("{program}::without::{grant}"), grant.clone());
        trials.push(shared.trial(name, async move |stage| {
            removal::is_needed(&stage.env().await?, stage.account(program)?, &grant).await
        }));
    }
    let written = |grant: &Grant| grant.resource == "nodes" && grant.verb == "patch";
    let noticed = grants.into_iter().rfind(written).context("a program that patches no node")?;
    trials.push(shared.trial(format!("{program}::goes_on_once_granted"), async move |stage| {
        removal::is_noticed(&stage.env().await?, stage.account(program)?, &noticed).await
    }));
    Ok(trials)
}

/// kustomize makes of the roles what their source says, and the account may not do what
/// would make it worth stealing.
async fn may_nothing_else(account: &Account) -> Result<()> {
    let program = account.program();
    ensure!(
        account.manifest().grants()? == Manifest::source(program)?.grants()?,
        "kustomize makes other rights of the roles than their source has"
    );
    let grant = |verb: &str, group: &str, resource: &str, namespace: &str, name: &str| Grant {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let leases = "coordination.k8s.io";
    let mut forbidden = vec![
        grant("get", "", "secrets", "kube-system", "cloud-config"),
        grant("list", "", "secrets", "", ""),
        grant("get", "", "configmaps", "kube-system", ""),
        grant("list", "", "pods", "", ""),
        grant("create", "", "serviceaccounts", "kube-system", ""),
        grant("patch", "rbac.authorization.k8s.io", "clusterroles", "", program),
        grant("create", "", "nodes", "", ""),
        grant("update", "", "nodes", "", "node-1"),
        grant("get", leases, "leases", "kube-system", "kube-controller-manager"),
        grant("patch", leases, "leases", "kube-node-lease", "node-1"),
        grant("delete", leases, "leases", "kube-system", program),
        grant("create", "", "events", "kube-public", ""),
        grant("patch", "", "events", "kube-system", ""),
    ];
    for other in PROGRAMS.into_iter().filter(|other| *other != program) {
        forbidden.push(grant("patch", leases, "leases", "kube-system", other));
    }
    if program == "node-ccm" {
        forbidden.push(grant("delete", "", "nodes", "", "node-1"));
    }
    for grant in forbidden {
        ensure!(!account.may(&grant).await?, "{program} may {grant}");
    }
    Ok(())
}
