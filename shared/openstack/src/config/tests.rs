use std::{collections::BTreeMap, fs, path::PathBuf};

use ccm_openstack_client::config::{
    ApplicationCredential, Credentials, Domain, Interface, Scope, Secret, Tls, User,
};
use ccm_settings::ValueKind;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

mod clouds;
mod generated;
mod told;

const LOGIN: &str =
    "[Global]\nauth-url = https://k:5000/v3\nuser-id = u\ntenant-id = t\npassword = hush\n";

/// A test environment with its own folders.
struct Place {
    folder: TempDir,
    variables: BTreeMap<String, String>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["etc", "work", "home/.config/openstack", "system"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        Self { folder, variables: BTreeMap::new() }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn environment(&self) -> Environment {
        Environment {
            variables: self.variables.clone(),
            home: Some(self.path("home")),
            working_folder: Some(self.path("work")),
            system_folder: self.path("system"),
        }
    }

    fn load(&self) -> Result<Loaded, CloudError> {
        Config::load(&self.path("etc/cloud.conf"), &self.environment(), &mut Files::default())
    }

    /// Returns the files that count, whether they can be used or not.
    fn files(&self) -> String {
        let mut files = Files::default();
        Config::load(&self.path("etc/cloud.conf"), &self.environment(), &mut files).ok();
        format!("{files:?}")
    }

    fn counts(&self, name: &str) -> bool {
        self.files().contains(&format!("{:?}", self.path(name)))
    }

    /// Returns the error for a file of this text, without the path that it must begin with.
    fn refused(&self, text: &str) -> String {
        self.put("etc/cloud.conf", text);
        let error = self.load().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(!error.message.contains("hush") && !error.message.contains('\n'), "{error}");
        let path = format!("--cloud-config {}: ", self.path("etc/cloud.conf").display());
        error.message.strip_prefix(&path).unwrap_or(&error.message).to_owned()
    }
}

fn parsed(text: &str) -> Result<Loaded, String> {
    Config::parse(
        Path::new("/etc/cloud.conf"),
        text,
        &Place::new().environment(),
        &mut Files::default(),
    )
}

fn good(rest: &str) -> Loaded {
    parsed(&format!("{LOGIN}{rest}")).unwrap_or_else(|error| panic!("{rest}: {error}"))
}

#[test]
fn a_minimal_file_has_the_defaults() {
    let Loaded { config, warnings } = good("");
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.access.auth_url.as_str(), "https://k:5000/v3");
    assert_eq!((config.access.interface, config.access.region), (Interface::Public, None));
    assert_eq!(
        (config.access.request_timeout, config.regional_ids),
        (Duration::from_secs(60), false)
    );
    assert_eq!((config.access.tls, config.networking), (Tls::default(), Networking::default()));
    assert_eq!((config.labels, config.route), (Labels::default(), Route::default()));
    assert_eq!(
        config.access.credentials,
        Credentials::Password {
            user: User::Id("u".to_owned()),
            password: Secret::new("hush"),
            scope: Scope::ProjectId("t".to_owned())
        }
    );
    let balancer = config.load_balancer;
    assert_eq!((balancer.provider.as_str(), balancer.method.as_str()), ("amphora", "ROUND_ROBIN"));
    assert!(balancer.enabled && balancer.cascade_delete && !balancer.create_monitor);
    assert!(!balancer.internal && !balancer.serial_calls && !balancer.manage_security_groups);
    assert_eq!((balancer.max_shared, balancer.container_store.as_str()), (2, "barbican"));
    assert_eq!(balancer.monitor_delay, Duration::from_secs(5));
    assert_eq!(balancer.monitor_timeout, Duration::from_secs(3));
    assert_eq!((balancer.monitor_max_retries, balancer.monitor_max_retries_down), (1, 3));
    assert!(!balancer.enable_ingress_hostname);
    assert_eq!((config.networks, config.classes.len()), (LoadBalancerClass::default(), 0));
}

#[test]
fn every_section_is_read() {
    let Loaded { config, warnings, .. } = good(
        "REGION = R1\nos-endpoint-type = internal\ntls-insecure = true\nca-file = ca.pem\n\
         cert-file = ~/c.pem\nkey-file = /k.pem\nrequest-timeout = 1m30s\n\
         [networking]\nIPv6-support-disabled\npublic-network-name = a\npublic-network-name = \"b c\"\n\
         internal-network-name = d\naddress-sort-order = 10.1.2.3/8, fd00::/8\n\
         [Labels]\nmetadata = team, cost-*\nhost-id = YES\nflavor-id = 1\n\
         [Route]\nrouter-id = r\n[Metadata]\nsearch-order = metadataService , configDrive\n\
         [LoadBalancer]\nenabled = off\nlb-provider = ovn\nlb-method = SOURCE_IP_PORT\n\
         monitor-delay = 7\nenable-ingress-hostname = true\nnode-selector = a=b,c\n\
         [LoadBalancerClass \"dmz\"]\nfloating-subnet-tags = t\n\
         [BlockStorage]\nbs-version = v2\n[keymanager]\nkey-id\n",
    );
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(
        (config.access.region.as_deref(), config.access.interface),
        (Some("R1"), Interface::Internal)
    );
    assert_eq!(config.access.request_timeout, Duration::from_secs(90));
    assert!(config.access.tls.insecure);
    assert_eq!(config.access.tls.ca_file, Some("/etc/ca.pem".into()));
    let (cert, key) = config.access.tls.client.unwrap();
    assert!(cert.ends_with("home/c.pem") && key == Path::new("/k.pem"), "{cert:?}");
    let Networking { ipv6_disabled, public_networks, internal_networks, sort_order } =
        config.networking;
    assert!(ipv6_disabled);
    assert_eq!(
        (public_networks, internal_networks),
        (vec!["a".into(), "b c".into()], vec!["d".into()])
    );
    assert_eq!(sort_order, ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse::<IpNet>().unwrap()]);
    let labels = Labels {
        metadata: vec!["team".to_owned(), "cost-*".to_owned()],
        host_id: true,
        flavor_id: true,
    };
    assert_eq!((config.labels, config.route.router_id), (labels, Some("r".to_owned())));
    let balancer = config.load_balancer;
    assert!(!balancer.enabled);
    assert_eq!(balancer.monitor_delay, Duration::from_secs(7));
    assert!(balancer.enable_ingress_hostname);
    assert_eq!(balancer.ingress_hostname_suffix, "nip.io");
    assert_eq!(balancer.node_selector.as_deref(), Some("a=b,c"));
    assert_eq!(config.classes["dmz"].floating_subnet_tags.as_deref(), Some("t"));
}

#[test]
fn every_declared_key_is_known_and_its_default_is_right() {
    for (section, setting) in settings() {
        let ccm_settings::Setting { flag, kind, default, .. } = setting;
        let sub = if section == CLASSES { " \"x\"" } else { "" };
        let loaded = good(&format!("[{section}{sub}]\n{flag} = {default}\n[Global]\n{LOGIN}"));
        let odd = loaded.warnings.iter().find(|odd| !odd.contains("given before"));
        assert_eq!(odd, None, "{setting:?}");
        let Err(said) = parsed(&format!("[{section}{sub}]\n{flag}\n")) else {
            panic!("{setting:?}: no credentials, and yet taken");
        };
        let complaint = format!("line 2: [{section}] {flag}: has no value");
        let may_stand_alone = matches!(kind, ValueKind::Switch | ValueKind::Repeated);
        // A flag without a value is true, and use-clouds leads to a file that does not exist.
        assert_eq!(said.contains(&complaint), !may_stand_alone, "{setting:?}: {said}");
    }
}

fn settings() -> Vec<(&'static str, &'static ccm_settings::Setting)> {
    let names = sections::SECTIONS.iter().map(|(name, _)| *name);
    names.flat_map(|name| sections::keys(name).map(move |setting| (name, setting))).collect()
}

#[test]
fn what_is_odd_is_a_warning() {
    for (rest, expect) in [
        ("[Router]\nrouter-id = x\n", "line 6: [Router]: unknown section; did you mean [Route]?"),
        ("[Nonsense]\na\nb\n", "line 6: [Nonsense]: unknown section"),
        ("[Global \"x\"]\na\n", "line 6: [Global \"x\"]: unknown section; did you mean [Global]?"),
        ("auth_url = x\n", "line 6: [Global] auth_url: unknown key; did you mean auth-url?"),
        ("pasword = hush\n", "line 6: [Global] pasword: unknown key; did you mean password?"),
        ("router-id = x\n", "line 6: [Global] router-id: unknown key; it belongs in [Route]"),
        ("zzzzzzzz = hush\n", "line 6: [Global] zzzzzzzz: unknown key"),
        (
            "[LoadBalancerClass]\nsubnet-id = x\n",
            "line 6: [LoadBalancerClass]: not used, it has no name; write [LoadBalancerClass \"name\"]",
        ),
        ("password = hush2\n", "line 6: [Global] password: given before; the last one counts"),
        (
            "tls-insecure = yes\n",
            "line 6: [Global] tls-insecure = \"yes\": only exactly true counts",
        ),
        (
            "cert-file = c\n",
            "line 6: [Global] cert-file = \"/etc/c\": not used: cert-file and key-file must both be set",
        ),
        (
            "key-file = c\n",
            "line 6: [Global] key-file = \"/etc/c\": not used: cert-file and key-file must both be set",
        ),
        ("cloud = c\n", "[Global] cloud and clouds-file: not used without use-clouds = true"),
        (
            "[Networking]\naddress-sort-order = 10.0.0.0/8,x\n",
            "line 7: [Networking] address-sort-order = \"10.0.0.0/8,x\": ignored \"x\": not a network prefix such as 10.0.0.0/8",
        ),
        (
            "[LoadBalancer]\nlb-provider = mine\n",
            "line 7: [LoadBalancer] lb-provider = \"mine\": not known here; known are amphora, octavia, ovn, f5, amphorav2",
        ),
        (
            "[LoadBalancer]\nlb-provider = ovn\n",
            "[LoadBalancer] lb-method: \"ROUND_ROBIN\" is not what ovn offers; must be SOURCE_IP_PORT",
        ),
        (
            "[LoadBalancer]\nlb-method = SOURCE_IP_PORT\n",
            "line 7: [LoadBalancer] lb-method = \"SOURCE_IP_PORT\": not what amphora offers, which gets ROUND_ROBIN instead",
        ),
        (
            "[LoadBalancer]\nmonitor-max-retries = 0\n",
            "line 7: [LoadBalancer] monitor-max-retries = \"0\": not what Octavia takes; must be from 1 to 10",
        ),
    ] {
        assert_eq!(good(rest).warnings, [format!("/etc/cloud.conf: {expect}")], "{rest}");
    }
}

#[test]
fn the_second_line_of_a_secret_that_was_broken_in_two_is_not_shown() {
    let said = "line 6: [Global]: unknown key, not shown because it may be a part of a value";
    for rest in ["hush\n", "HUSH==\n", "Hush = x\n", "hush9 =\n", "9hush = x\n"] {
        assert_eq!(good(rest).warnings, [format!("/etc/cloud.conf: {said}")], "{rest}");
    }
}

/// The password crosses the network: said once, and it works as before.
#[test]
fn a_keystone_without_tls_is_a_warning() {
    let said = "the credentials and all tokens cross the network in clear; use https://";
    for (url, expect) in [
        ("http://k:5000/v3", Some("http://k:5000/v3")),
        ("HTTP://10.0.0.1", Some("HTTP://10.0.0.1")),
        ("https://k", None),
        ("http://127.0.0.1:5000", None),
        ("http://localhost", None),
        ("http://[::1]:5000/v3", None),
    ] {
        let login = LOGIN.replace("https://k:5000/v3", url);
        let place = Place::new();
        place.put("etc/cloud.conf", &login);
        let warnings = place.load().unwrap().warnings.join("\n");
        let conf = place.path("etc/cloud.conf");
        let expect = expect.map_or_else(String::new, |url| {
            format!("{}: line 2: [Global] auth-url = {url:?}: {said}", conf.display())
        });
        assert_eq!(warnings, expect, "{url}");
    }
}

#[test]
fn all_problems_are_refused_and_reported_together() {
    let flag = "must be true, yes, on, 1 or false, no, off, 0";
    let duration = "must be a duration such as 30s or 1m30s, or a whole number of seconds";
    let url = "must be the URL of Keystone, such as https://keystone.example.com:5000/v3";
    let place = Place::new();
    for (rest, expect) in [
        ("use-clouds = maybe\n", format!("line 6: [Global] use-clouds = \"maybe\": {flag}")),
        ("use-clouds =\n", format!("line 6: [Global] use-clouds: {flag}")),
        ("request-timeout = fast\n", format!("line 6: [Global] request-timeout = \"fast\": {duration}")),
        ("request-timeout = -5s\n", format!("line 6: [Global] request-timeout = \"-5s\": {duration}")),
        ("token\n", "line 6: [Global] token: has no value; must be token = value".to_owned()),
        ("os-endpoint-type = internalURL\n", "line 6: [Global] os-endpoint-type = \"internalURL\": must be public or internal or admin".to_owned()),
        ("auth-url = keystone:5000\n", format!("line 6: [Global] auth-url = \"keystone:5000\": {url}")),
        ("auth-url = https://K\u{e9}y.example\n", format!("line 6: [Global] auth-url = \"https://K\u{e9}y.example\": {url}")),
        ("auth-url = ftp://k\n", format!("line 6: [Global] auth-url = \"ftp://k\": {url}")),
        ("auth-url = https://me:hush@k\n", "line 6: [Global] auth-url: must not hold a user or a password; they have separate keys".to_owned()),
        ("auth-url = https://k/v2.0\n", "line 6: [Global] auth-url = \"https://k/v2.0\": is Keystone's API v2.0, which no longer exists; must end in /v3 or have no version".to_owned()),
        ("auth-url = https://k/v3password=hush\n", format!("line 6: [Global] auth-url: {url}, with no blank and no =: is a line break missing?")),
        ("auth-url = https://k/v3 password=hush\n", format!("line 6: [Global] auth-url: {url}, with no blank and no =: is a line break missing?")),
        ("auth-url = ftp://k hush\n", format!("line 6: [Global] auth-url: {url}, with no blank and no =: is a line break missing?")),
        ("auth-url = ftp://k password hush\n", format!("line 6: [Global] auth-url: {url}, with no blank and no =: is a line break missing?")),
        ("[Labels]\nmetadata = a*b\n", "line 7: [Labels] metadata = \"a*b\": \"a*b\": * may stand only at the end".to_owned()),
        ("[LoadBalancer]\nlb-version = v1\n", "line 7: [LoadBalancer] lb-version = \"v1\": must be v2".to_owned()),
        ("[LoadBalancer]\nmax-shared-lb = -1\n", "line 7: [LoadBalancer] max-shared-lb = \"-1\": must be a whole number from 0 to 4294967295".to_owned()),
        ("token = hush\n", "[Global]: credentials contradict each other: token and password are set; keep only one method, such as token".to_owned()),
        ("password = \"hush\n", "line 6: a double quote is not closed on its line; write \\\" for a quote that belongs to the value".to_owned()),
        ("password = hu\\sh\n", "line 6: an unknown escape; write \\\\ for a backslash (known are \\\\ \\\" \\n \\t \\b)".to_owned()),
        ("hush hush\n", "line 6: expected = behind the key".to_owned()),
        ("[Metadata]\nsearch-order =\n", "line 7: [Metadata] search-order: must be one or two of configDrive, metadataService, separated by a comma".to_owned()),
        ("[Metadata]\nsearch-order = a,b,c\n", "line 7: [Metadata] search-order = \"a,b,c\": must be one or two of configDrive, metadataService, separated by a comma".to_owned()),
        ("[Metadata]\nsearch-order = configdrive\n", "line 7: [Metadata] search-order = \"configdrive\": must be one or two of configDrive, metadataService, separated by a comma".to_owned()),
    ] {
        let said = place.refused(&format!("{LOGIN}{rest}"));
        let (problem, odd) = said.split_once("; also ").unwrap_or((&said, ""));
        assert_eq!(problem, expect, "{rest}");
        assert!(odd.is_empty() || odd.contains("given before"), "{odd}");
    }
    let said = place.refused("[Gloabl]\nauth-url = https://k\n");
    assert!(said.contains("; also ") && said.contains("[Global]?"), "{said}");
    let said = place.refused("x = 1\n[Global]\nuse-clouds = 2\nusername = u\n[Route\n");
    assert_eq!(
        said,
        format!(
            "line 1: a key before the first [section]; line 5: expected ] at the end of the section's name; \
             line 3: [Global] use-clouds = \"2\": {flag}; \
             [Global] auth-url: missing; must be the URL of Keystone, here or in clouds.yaml; \
             [Global]: no credentials: set username and password, or application-credential-id and \
             application-credential-secret, or trust-id, or token"
        )
    );
}

#[test]
fn durations_are_gos_or_seconds() {
    for (text, expect) in [
        ("5", Some(5_000)),
        ("0", Some(0)),
        ("5s", Some(5_000)),
        ("1m30s", Some(90_000)),
        ("1.5h", Some(5_400_000)),
        ("250ms", Some(250)),
        ("+2s", Some(2_000)),
        (".5s", Some(500)),
        ("", None),
        ("s", None),
        ("1", Some(1_000)),
        ("1.5", None),
        ("1 s", None),
        ("-1s", None),
        ("1d", None),
        ("1m30", None),
        ("1..5s", None),
        ("99999999999999999999h", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(duration(text, "").ok(), expect.map(Duration::from_millis), "{text}");
    }
}

#[test]
fn the_timeout_of_requests_has_two_places() {
    for (rest, expect) in [
        ("", 60),
        ("[Metadata]\nrequest-timeout = 100\n", 100),
        ("request-timeout = 20s\n[Metadata]\nrequest-timeout = 100s\n", 20),
        ("request-timeout = 0\n", 0),
    ] {
        assert_eq!(good(rest).config.access.request_timeout, Duration::from_secs(expect), "{rest}");
    }
}

#[test]
fn provider_ids_are_regional_by_exactly_true() {
    for (value, expect) in [("true", true), ("True", false), ("1", false), ("false", false)] {
        let place = Place::new().with("OS_CCM_REGIONAL", value);
        place.put("etc/cloud.conf", &format!("{LOGIN}region = r\n"));
        assert_eq!(place.load().unwrap().config.regional_ids, expect, "{value}");
    }
    let place = Place::new().with("OS_CCM_REGIONAL", "true");
    place.put("etc/cloud.conf", LOGIN);
    let warnings = place.load().unwrap().warnings.join("\n");
    assert!(warnings.contains("[Global] region: not set"), "{warnings}");
}

#[test]
fn what_is_no_text_file_is_refused_in_one_line() {
    let place = Place::new();
    let conf = place.path("etc/cloud.conf");
    let said = || {
        let said = place.load().unwrap_err().message;
        said.strip_prefix(&format!("--cloud-config {}: ", conf.display())).unwrap().to_owned()
    };
    assert_eq!(said(), "there is no such file");
    fs::create_dir(&conf).unwrap();
    assert_eq!(said(), "is a folder; give the path of the file in it");
    fs::remove_dir(&conf).unwrap();
    fs::write(&conf, [0xff, 0xfe, 0]).unwrap();
    assert_eq!(said(), "is not a text file (UTF-8)");
    fs::write(&conf, "#".repeat((1 << 20) + 1)).unwrap();
    assert_eq!(said(), "is larger than 1024 KiB");
    fs::remove_file(&conf).unwrap();
    std::process::Command::new("mkfifo").arg(&conf).status().unwrap();
    assert_eq!(said(), "is not a plain file");
}

#[test]
fn no_secret_is_printed() {
    let loaded = good("");
    assert!(!format!("{loaded:?}").contains("hush"));
    let secret = Secret::new("hush");
    assert_eq!(format!("{secret:?}"), "***");
}

#[test]
fn the_process_is_an_environment() {
    let process = Environment::of_process();
    assert_eq!(process.variable("CARGO_PKG_NAME"), Some("ccm-openstack"));
    assert_eq!(process.variable("NO_SUCH_VARIABLE_AT_ALL"), None);
    assert!(process.working_folder.unwrap().is_absolute());
    assert_eq!(process.system_folder, Path::new("/etc/openstack"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_file_panics(text in any::<String>()) {
        let _read = Config::parse(Path::new("c"), &text, &Environment::default(), &mut Files::default());
    }

    #[test]
    fn no_value_panics_or_shows_a_secret(
        index in 0..settings().len(),
        value in "\\PC{0,20}",
    ) {
        let (section, setting) = settings()[index];
        let flag = setting.flag;
        let text = format!("{LOGIN}[{section}]\n{flag} = {value}q7x\n[Global]\npassword = q8x\n");
        let said = match Config::parse(Path::new("c"), &text, &Environment::default(), &mut Files::default()) {
            Ok(loaded) => format!("{} {:?}", loaded.warnings.join(" "), loaded.config.access.credentials),
            Err(why) => why,
        };
        prop_assert!(!said.contains("q8x"));
        prop_assert!(setting.kind != ValueKind::Secret || !said.contains("q7x"));
    }
}
