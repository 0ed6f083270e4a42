use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::{Cloud, CloudError, ErrorKind, ProviderContext, ProviderFactory, ProviderRegistry};

use super::{
    Failure,
    sample::Sample,
    start::{Exit, start},
};
use crate::settings::Invocation;

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
}
