use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::{Cloud, CloudError, ErrorKind, ProviderContext, ProviderFactory, ProviderRegistry};

use super::{Failure, exit::Exit, sample::Sample, start::start};
use ccm_settings::Invocation;

/// A provider that fails in this way.
struct Failing(ErrorKind);

#[async_trait]
impl ProviderFactory for Failing {
    fn name(&self) -> &'static str {
        "test"
    }

    async fn build(&self, _: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError> {
        Err(CloudError::new(self.0, "region must be set"))
    }
}

#[test]
fn what_needs_no_work_has_its_exit_code() {
    let check = |kind: ErrorKind, arguments: &[&str], expect: Exit| {
        let providers = ProviderRegistry::new().with(Failing(kind));
        let exit = start::<Sample>(&Invocation::with_arguments(arguments), &providers);
        assert_eq!(exit, expect, "{arguments:?}");
    };
    let good = "--cloud-provider=test";
    check(ErrorKind::Invalid, &["--version"], Exit::Done);
    check(ErrorKind::Invalid, &["--help"], Exit::Done);
    check(ErrorKind::Invalid, &["--print-options-markdown"], Exit::Done);
    check(ErrorKind::Invalid, &["--no-such-flag"], Exit::Usage);
    check(ErrorKind::Invalid, &["extra"], Exit::Usage);
    check(ErrorKind::Invalid, &[], Exit::Usage);
    check(ErrorKind::Invalid, &["--cloud-provider=unknown"], Exit::Usage);
    check(ErrorKind::Invalid, &[good, "--concurrent-node-syncs=0"], Exit::Usage);
    check(ErrorKind::Invalid, &[good, "--config=/nowhere.yaml"], Exit::Usage);
    check(ErrorKind::Invalid, &[good, "--check-config"], Exit::Usage);
    check(ErrorKind::Unavailable, &[good, "--check-config"], Exit::Done);
    check(ErrorKind::Unavailable, &["--check-config"], Exit::Usage);
    check(ErrorKind::Unavailable, &[good, "--check-config", "--page-size=0"], Exit::Usage);
}

/// What a start would stumble over a moment later is no valid configuration.
#[test]
fn files_that_settings_name_are_checked_with_the_exit_code_of_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let check = |arguments: &[String], expect: Exit| {
        let providers = ProviderRegistry::new().with(Failing(ErrorKind::Unavailable));
        let mut all = vec!["--cloud-provider=test".to_owned(), "--check-config".to_owned()];
        all.extend_from_slice(arguments);
        let exit = start::<Sample>(&Invocation::with_arguments(&all), &providers);
        assert_eq!(exit, expect, "{arguments:?}");
    };
    let kubeconfig = |path: &str| format!("--kubeconfig={path}");
    let cluster = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n\
                   contexts: [{name: c, context: {cluster: c, user: u}}]\n\
                   users: [{name: u, user: {}}]\ncurrent-context: c\n";
    check(&[kubeconfig(&file("good", cluster))], Exit::Done);
    check(&[kubeconfig("/nowhere/kubeconfig")], Exit::Usage);
    check(&[kubeconfig(&file("bad", "a: ["))], Exit::Usage);
    check(&["--master=nonsense://".to_owned()], Exit::Usage);
    let text = file("tls.pem", "no certificate");
    let tls =
        |path: &str| [format!("--tls-cert-file={path}"), format!("--tls-private-key-file={path}")];
    check(&tls(&text), Exit::Broken);
    check(&tls("/nowhere/tls.pem"), Exit::Broken);
    let [certificate, key] = tls(&text);
    check(&[certificate, key, "--secure-port=0".to_owned()], Exit::Done);
}

#[test]
fn exit_codes_are_as_documented() {
    assert_eq!(Exit::Done.code(), 0);
    assert_eq!(Exit::from(&Failure::Broken(String::new())).code(), 1);
    assert_eq!(Exit::from(&Failure::Usage(String::new())).code(), 2);
    assert_eq!(Exit::Signal(143).code(), 143);
}

#[test]
fn servers_are_told_who_asks() {
    let agent = <Sample as super::Program>::IDENTITY.user_agent();
    assert!(
        agent.starts_with(&format!("node-ccm/{} (linux/", env!("CARGO_PKG_VERSION"))),
        "{agent}"
    );
    for (arguments, expect) in [
        (vec![], String::new()),
        (vec!["--user-agent=k8s-prod/7"], "k8s-prod/7 ".to_owned()),
        (
            vec!["--user-agent=k8s-prod/7", "--user-agent", "team a"],
            "k8s-prod/7 team a ".to_owned(),
        ),
        (vec!["--user-agent=", "--user-agent= x "], "x ".to_owned()),
    ] {
        let told = Told::default();
        let providers = ProviderRegistry::new().with(told.clone());
        let all = [&["--cloud-provider=told", "--check-config"], &*arguments].concat();
        assert_eq!(start::<Sample>(&Invocation::with_arguments(&all), &providers), Exit::Done);
        assert_eq!(*told.0.lock(), expect + &agent, "{arguments:?}");
    }
    let providers = ProviderRegistry::new().with(Told::default());
    let all = ["--cloud-provider=told", "--check-config", "--user-agent"];
    assert_eq!(start::<Sample>(&Invocation::with_arguments(all), &providers), Exit::Usage);
}

/// A provider that remembers under which name it is to speak to its cloud.
#[derive(Clone, Default)]
struct Told(Arc<parking_lot::Mutex<String>>);

#[async_trait]
impl ProviderFactory for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    async fn build(&self, context: ProviderContext) -> Result<Arc<dyn Cloud>, CloudError> {
        *self.0.lock() = context.user_agent;
        Err(CloudError::new(ErrorKind::Unavailable, "nobody is asked"))
    }
}
