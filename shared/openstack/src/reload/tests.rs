//! Tests files that change, with paused time, against the cloud in memory.

use std::{fs, sync::Arc, time::Duration};

use ccm_cloud::Cloud as _;
use tempfile::TempDir;
use tokio::time::sleep;

use super::*;
use crate::tests::{
    cloud::{Move, PASSWORD, Rig},
    credentials::Sink,
};

/// A time that is longer than the interval between two looks at the files.
const SOON: Duration = Duration::from_secs(6);

/// A folder with the files, and a cloud that follows them.
struct Followed {
    rig: Rig,
    folder: TempDir,
    cloud: Arc<OpenStackCloud>,
}

impl Followed {
    /// Creates a place in which `cloud.conf` names `clouds.yaml` beside it.
    async fn new(clouds: &str) -> Self {
        let (rig, folder) = (Rig::new(), tempfile::tempdir().unwrap());
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("clouds.yaml", clouds);
        put("cloud.conf", "[Global]\nuse-clouds = true\nclouds-file = clouds.yaml\n");
        let mut source = Source::new(folder.path().join("cloud.conf"));
        let loaded = source.load().await.unwrap();
        let cloud = Arc::new(OpenStackCloud::new(rig.clients(), &loaded.config).unwrap());
        cloud.keep(run(source, Arc::downgrade(&cloud), rig.metrics.clone()));
        sleep(SOON).await;
        Self { rig, folder, cloud }
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    async fn ask(&self) {
        self.cloud.health(Call::waiting(Duration::from_secs(5))).await.unwrap();
    }

    /// Returns how many logins there were once the files have been looked at again.
    async fn logins(&self) -> usize {
        sleep(SOON).await;
        self.rig.cloud.logins()
    }

    /// Returns true if the last login used this password.
    fn showed(&self, password: &str) -> bool {
        let seen = self.rig.cloud.seen();
        let last = seen.iter().rfind(|seen| seen.host == "keystone");
        last.is_some_and(|seen| String::from_utf8_lossy(&seen.body).contains(password))
    }
}

const ONE: &str = "clouds: {c: {region_name: one, auth: {auth_url: 'http://keystone', user_id: u1, project_id: p1, password: of-clouds}}}";

#[tokio::test(start_paused = true)]
async fn a_file_that_was_not_there_before_is_noticed() {
    let followed = Followed::new(ONE).await;
    assert_eq!(followed.logins().await, 0, "nothing has changed");
    let secure = |password: &str| format!("clouds: {{c: {{auth: {{password: {password}}}}}}}");
    followed.put("secure.yaml", &secure("of-secure"));
    assert_eq!(followed.logins().await, 1);
    assert!(followed.showed("of-secure"), "tried, and refused by Keystone");
    followed.put("secure.yaml", &secure(&format!("'{PASSWORD}'")));
    assert_eq!(followed.logins().await, 2);
    followed.ask().await;
    assert_eq!(followed.rig.cloud.logins(), 2, "the tried session is in use");
    assert!(followed.cloud.instances().is_ok());

    fs::remove_file(followed.folder.path().join("secure.yaml")).unwrap();
    assert_eq!(followed.logins().await, 3);
    assert!(followed.showed("of-clouds"), "its end is noticed as well");
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_comes_later_mends_the_settings() {
    let followed = Followed::new(ONE).await;
    let text = format!(
        "clouds: {{c: {{profile: vendor, region_name: one, auth: {{user_id: u1, project_id: p1, password: '{PASSWORD}'}}}}}}"
    );
    followed.put("clouds.yaml", &text);
    assert_eq!(followed.logins().await, 0, "the profile is missing");
    let vendor = "public-clouds: {vendor: {auth: {auth_url: 'http://keystone'}}}";
    followed.put("clouds-public.yaml", vendor);
    assert_eq!(followed.logins().await, 1);
    followed.ask().await;
    assert_eq!(followed.rig.cloud.logins(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_the_settings_name_before_it_is_there_is_waited_for() {
    let followed = Followed::new(ONE).await;
    followed.put("cloud.conf", "[Global]\nuse-clouds = true\nclouds-file = next.yaml\n");
    assert_eq!(followed.logins().await, 0);
    followed.put("next.yaml", &ONE.replace("of-clouds", PASSWORD));
    assert_eq!(followed.logins().await, 1);
    followed.ask().await;
    assert_eq!(followed.rig.cloud.logins(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_tried_less_and_less_often_and_changed_ones_at_once() {
    const HOUR: Duration = Duration::from_hours(1);
    let followed = Followed::new(ONE).await;
    followed.put("clouds.yaml", &ONE.replace("of-clouds", "first"));
    sleep(HOUR).await;
    assert_eq!(followed.rig.cloud.logins(), 7, "after 30 s, 60 s, and so on up to 16 min");
    followed.put("clouds.yaml", &ONE.replace("of-clouds", "second"));
    assert_eq!(followed.logins().await, 8);
    assert!(followed.showed("second"));
    sleep(HOUR).await;
    assert_eq!(followed.rig.cloud.logins(), 7 + 7, "each content counts for itself");

    let outage = Move::text(500, "{}");
    followed.rig.cloud.always("keystone", Some(outage));
    followed.put("clouds.yaml", &ONE.replace("of-clouds", "third"));
    let before = followed.rig.cloud.logins();
    sleep(HOUR).await;
    let tried = followed.rig.cloud.logins() - before;
    assert!((100..=120).contains(&tried), "{tried} times: an outage may end any moment");
}

#[tokio::test(start_paused = true)]
async fn a_trial_says_nothing_of_the_credentials_in_use() {
    let followed = Followed::new(ONE).await;
    let (rig, sink) = (&followed.rig, Sink::default());
    ccm_cloud::MetricsSink::add(&sink, &mut |registry| rig.metrics.register(registry));
    let page = |line: &str| {
        let text = sink.text();
        assert!(text.contains(line), "{line} in {text}");
    };
    rig.nova(5).await.unwrap();
    followed.put("clouds.yaml", &format!("{ONE} # a comment"));
    sleep(SOON).await;
    assert!(followed.showed("of-clouds"), "tried, and refused by Keystone");
    page("openstack_credentials_refused 0");
    assert!(!sink.text().contains("result=\"refused\""), "the metrics are of those in use");

    // While a trial is under way, Keystone refuses the credentials in use.
    rig.cloud.next("keystone", [Move::Slow(Duration::from_secs(20))]);
    followed.put("clouds.yaml", &ONE.replace("of-clouds", "other"));
    sleep(SOON).await;
    assert!(followed.showed("other"), "under way");
    rig.cloud.set_password("changed");
    rig.cloud.revoke();
    rig.nova(5).await.unwrap_err();
    page("openstack_credentials_refused 1");
    sleep(Duration::from_secs(20)).await;
    page("openstack_configuration_refused 1");
    page("openstack_credentials_refused 1");
    page("openstack_token_renewals_total{result=\"refused\"} 1");

    followed.put("clouds.yaml", &ONE.replace("of-clouds", "changed"));
    sleep(SOON).await;
    page("openstack_credentials_refused 0");
    page("openstack_token_renewals_total{result=\"ok\"} 2");
}

/// The process with the changed settings reports them only after its restart.
#[tokio::test(start_paused = true)]
async fn another_project_in_the_files_is_another_identity_of_the_next_process() {
    let good = ONE.replace("of-clouds", PASSWORD);
    let unnamed = good.replace("region_name: one, ", "");
    for text in [&good, &unnamed] {
        let followed = Followed::new(text).await;
        followed.ask().await;
        let identity = followed.cloud.identity();
        assert_eq!(identity.as_deref(), Some("project p1, region one, keystone"), "{text}");
    }
    let followed = Followed::new(&good).await;
    followed.ask().await;
    followed.rig.cloud.set_project(Some("p2"));
    followed.put("clouds.yaml", &good.replace("p1", "p2"));
    sleep(SOON).await;
    assert_eq!(followed.cloud.outdated().await, "project");
    assert_eq!(followed.cloud.identity().as_deref(), Some("project p1, region one, keystone"));
    let next = Followed::new(&good.replace("p1", "p2")).await;
    next.rig.cloud.set_project(Some("p2"));
    next.ask().await;
    assert_eq!(next.cloud.identity().as_deref(), Some("project p2, region one, keystone"));
}

#[tokio::test]
async fn a_file_that_makes_its_reader_panic_is_invalid_until_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.conf");
    let put = |host: &str| {
        let login = "user-id = u1\npassword = p\ntenant-id = p1\nregion = one\n";
        fs::write(&path, format!("[Global]\nauth-url = https://{host}:5000/v3\n{login}")).unwrap();
    };
    put("bad.example");
    let mut source = Source::new(path.clone());
    let error = source.load_by(|_, _| panic!("a defect")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("cloud.conf: cannot be read: "), "{error}");
    put("key.example");
    source.files.changed().await;
    source.load().await.unwrap();
}
