use super::*;

const USE: &str = "[Global]\nuse-clouds = true\n";
const ONE: &str = "clouds:\n  one:\n    auth: {auth_url: 'https://one', user_id: u1, password: hush1, project_id: p1}\n    region_name: r1\n    interface: internalURL\n    cacert: ca.pem\n    cert: ~/c\n    key: /k\n";
const TWO: &str = "clouds:\n  one:\n    auth: {auth_url: 'https://one', user_id: u, password: hush}\n  two:\n    auth: {auth_url: 'https://two', user_id: u, password: hush}\n";

fn url(place: &Place) -> String {
    place.load().unwrap().config.access.auth_url.to_string()
}

#[test]
fn the_file_says_what_global_leaves_out() {
    let place = Place::new();
    place.put("work/clouds.yaml", ONE);
    place.put("etc/cloud.conf", &format!("{USE}[Networking]\npublic-network-name = n\n"));
    let Loaded { config, warnings } = place.load().unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.access.region.as_deref(), Some("r1"));
    assert_eq!(config.access.interface, Interface::Internal);
    let (work, home) = (place.path("work"), place.path("home"));
    assert_eq!(config.access.tls.ca_file, Some(work.join("ca.pem")));
    assert_eq!(config.access.tls.client, Some((home.join("c"), "/k".into())));
    assert_eq!(config.networking.public_networks, ["n"]);
    for name in ["etc/cloud.conf", "work/clouds.yaml", "work/ca.pem", "home/c"] {
        assert!(place.counts(name), "{name}: {}", place.files());
    }

    // [Global] wins, also when the entry is chosen by name.
    place.put(
        "etc/cloud.conf",
        &format!("{USE}cloud = one\npassword = hush2\nregion = r2\nos-endpoint-type = admin\nca-file = x\n"),
    );
    let config = place.load().unwrap().config;
    assert_eq!(
        (config.access.region.as_deref(), config.access.interface),
        (Some("r2"), Interface::Admin)
    );
    assert_eq!(config.access.tls.ca_file, Some(place.path("etc/x")));
    let Credentials::Password { user, password, scope } = config.access.credentials else {
        panic!("another way to log in");
    };
    assert_eq!((user, scope), (User::Id("u1".to_owned()), Scope::ProjectId("p1".to_owned())));
    assert_eq!(password.expose(), "hush2");
}

#[test]
fn it_is_looked_for_in_the_known_places() {
    let at = |name: &str| {
        format!("clouds: {{c: {{auth: {{auth_url: 'https://{name}/', user_id: u, password: p}}}}}}")
    };
    let mut place = Place::new();
    place.put("etc/cloud.conf", USE);
    let missing = place.load().unwrap_err().message;
    assert!(missing.contains("[Global] use-clouds: no clouds.yaml in "), "{missing}");
    assert!(!missing.contains("auth-url"), "{missing}");
    for (file, name) in [
        ("system/clouds.yml", "system-yml"),
        ("system/clouds.yaml", "system"),
        ("home/.config/openstack/clouds.yaml", "home"),
        ("work/clouds.yml", "work-yml"),
        ("work/clouds.yaml", "work"),
    ] {
        place.put(file, &at(name));
        assert_eq!(url(&place), format!("https://{name}/"));
    }
    place.put("work/mine.yaml", &at("variable"));
    place = place.with("OS_CLIENT_CONFIG_FILE", "mine.yaml");
    assert_eq!(url(&place), "https://variable/");
    place.put("etc/given.yaml", &at("given"));
    place.put("etc/cloud.conf", &format!("{USE}clouds-file = given.yaml\n"));
    assert_eq!(url(&place), "https://given/");
    place.put("etc/cloud.conf", &format!("{USE}clouds-file = none.yaml\n"));
    let missing = place.load().unwrap_err().message;
    assert!(missing.contains("etc/none.yaml: there is no such file"), "{missing}");
    place.put("etc/cloud.conf", &format!("{USE}clouds-file = given.yaml\u{200b}\n"));
    let missing = place.load().unwrap_err().message;
    assert!(missing.contains("etc/given.yaml\\u{200b}: there is no such file"), "{missing}");
}

#[test]
fn the_entry_is_chosen_by_key_then_variable_then_alone() {
    let place = Place::new();
    place.put("work/clouds.yaml", TWO);
    let file = place.path("work/clouds.yaml").display().to_string();
    for (rest, expect) in [
        ("", "has several entries; choose one by [Global] cloud or OS_CLOUD: one, two"),
        ("cloud = tow\n", "has no entry \"tow\", which [Global] cloud asks for; did you mean two?"),
        (
            "cloud = ten\n",
            "has no entry \"ten\", which [Global] cloud asks for; known are one, two",
        ),
    ] {
        let said = place.refused(&format!("{USE}{rest}"));
        assert!(said.ends_with(&format!("{file}: {expect}")), "{said}");
    }
    let place = place.with("OS_CLOUD", "two");
    place.put("etc/cloud.conf", USE);
    assert_eq!(url(&place), "https://two/");
    place.put("etc/cloud.conf", &format!("{USE}cloud = one\n"));
    assert_eq!(url(&place), "https://one/");
    place.put("work/clouds.yaml", "# nothing\n");
    assert!(place.refused(USE).ends_with("has no entry under clouds"));
}

#[test]
fn secrets_and_profiles_have_files_of_their_own() {
    let place = Place::new();
    place.put("etc/cloud.conf", USE);
    place.put(
        "work/clouds.yaml",
        "clouds: {c: {profile: vendor, auth: {username: u, password: old, user_domain_name: d}}}",
    );
    place.put("home/.config/openstack/secure.yaml", "clouds: {c: {auth: {password: 0123}}}");
    let said = place.load().unwrap_err().message;
    assert!(said.contains("the entry's profile \"vendor\" is not among public-clouds"), "{said}");
    place.put(
        "system/clouds-public.yaml",
        "public-clouds: {vendor: {region_name: r, verify: false, auth: {auth_url: 'https://v', username: no}}}",
    );
    let Loaded { config, warnings } = place.load().unwrap();
    assert_eq!(
        (config.access.auth_url.as_str(), config.access.region.as_deref()),
        ("https://v/", Some("r"))
    );
    let Credentials::Password { user, password, .. } = config.access.credentials else {
        panic!("another way to log in");
    };
    // A number keeps its spelling.
    assert_eq!(password.expose(), "0123");
    let domain = Domain::Name("d".to_owned());
    assert_eq!(user, User::Name { name: "u".to_owned(), domain });
    for name in [
        "work/clouds.yaml",
        "home/.config/openstack/secure.yaml",
        "system/clouds-public.yaml",
        // These files do not exist, but would take precedence over the existing ones.
        "work/secure.yaml",
        "work/secure.yml",
        "home/.config/openstack/clouds-public.yml",
    ] {
        assert!(place.counts(name), "{name}: {}", place.files());
    }
    assert!(!place.counts("system/secure.yaml"), "it would not count");
    let verify = "verify of the entry \"c\" is not read; set tls-insecure = true in [Global]";
    let is_verify = |line: &&String| line.ends_with(verify);
    assert_eq!(warnings.iter().filter(is_verify).count(), 1, "{warnings:?}");
    assert!(!config.access.tls.insecure);
    // The program does not repeat advice that the user already follows.
    place.put("etc/cloud.conf", &format!("{USE}tls-insecure = true\n"));
    assert_eq!(place.load().unwrap().warnings.iter().find(is_verify), None);
}

/// `endpoint_type` is the older name of `interface`. Under either name, the value of the entry
/// takes precedence over the value of the profile.
#[test]
fn an_entry_goes_before_its_profile_also_by_an_older_name() {
    let place = Place::new();
    place.put("etc/cloud.conf", USE);
    place.put(
        "work/clouds.yaml",
        "clouds: {c: {profile: vendor, endpoint_type: internalURL, auth: {username: u, password: p, user_domain_name: d}}}",
    );
    place.put(
        "system/clouds-public.yaml",
        "public-clouds: {vendor: {interface: public, auth: {auth_url: 'https://v'}}}",
    );
    assert_eq!(place.load().unwrap().config.access.interface, Interface::Internal);
}

#[test]
fn names_of_gophercloud_mean_what_they_mean_there() {
    let place = Place::new();
    place.put("etc/cloud.conf", USE);
    let load = |entry: &str, auth: &str| {
        let auth =
            format!("auth_url: 'https://k', username: u, password: p, project_name: n{auth}");
        place.put("work/clouds.yaml", &format!("clouds: {{c: {{{entry} auth: {{{auth}}}}}}}"));
        place.load().unwrap().config
    };
    // Both are set: the older name takes precedence.
    let config = load("interface: public, endpoint_type: internal,", ", domain_id: d");
    assert_eq!(config.access.interface, Interface::Internal);
    let domains = |auth: &str| {
        let Credentials::Password { user, scope, .. } = load("", auth).access.credentials else {
            panic!()
        };
        let (User::Name { domain, .. }, Scope::ProjectName { domain: of_project, .. }) =
            (user, scope)
        else {
            panic!("not by name")
        };
        (domain, of_project)
    };
    let id = |id: &str| Domain::Id(id.to_owned());
    assert_eq!(domains(", default_domain: d"), (id("d"), id("d")));
    assert_eq!(domains(", default_domain: d, domain_id: e"), (id("e"), id("e")));
    let own = domains(", default_domain: 07, user_domain_name: e");
    assert_eq!(own, (Domain::Name("e".to_owned()), id("07")));
}

#[test]
fn files_that_are_missing_count_also_when_nothing_can_be_used_without_them() {
    let place = Place::new();
    place.put("etc/cloud.conf", USE);
    for name in ["etc/cloud.conf", "work/clouds.yaml", "work/clouds.yml", "system/clouds.yaml"] {
        assert!(place.counts(name), "{name}: {}", place.files());
    }
    place.put("etc/cloud.conf", &format!("{USE}clouds-file = own/my.yaml\n"));
    assert!(place.counts("etc/cloud.conf") && place.counts("etc/own/my.yaml"));
    assert_eq!(place.files().matches("/etc/").count(), 2, "{}", place.files());
}

#[test]
fn numbers_and_merged_mappings_are_read() {
    let place = Place::new();
    place.put("etc/cloud.conf", USE);
    for (secret, expect) in [("1e3", "1e3"), ("007", "007"), ("0x1F", "0x1F"), ("true", "true")] {
        place.put(
            "work/clouds.yaml",
            &format!("clouds: {{c: {{auth: {{auth_url: 'http://k', user_id: 17, application_credential_id: 5, application_credential_secret: {secret}}}}}}}"),
        );
        let Credentials::ApplicationCredential { credential, secret } =
            place.load().unwrap().config.access.credentials
        else {
            panic!("another way to log in");
        };
        assert_eq!(secret.expose(), expect);
        assert_eq!(credential, ApplicationCredential::Id("5".to_owned()));
    }
    place.put(
        "work/clouds.yaml",
        "x: &x {auth_url: 'http://merged', user_id: u}\nclouds: {c: {auth: {<<: *x, password: p}}}",
    );
    assert_eq!(url(&place), "http://merged/");
}

#[test]
fn a_broken_file_is_refused_without_its_text() {
    let place = Place::new();
    let ten = |at: usize| vec![format!("*a{at}"); 10].join(", ");
    let line = |at: usize| format!("a{at}: &a{at} [{}]", ten(at - 1));
    let aliases = format!("a0: &a0 [x]\n{}", (1..9).map(line).collect::<Vec<_>>().join("\n"));
    for (text, expect) in [
        ("clouds: {c: {auth: hush}}", "not the shape of a clouds.yaml"),
        ("clouds: [hush]", "not the shape of a clouds.yaml"),
        ("clouds: {c: {auth: {password: [hush]}}}", "not the shape of a clouds.yaml"),
        ("clouds: {c: \"hush}", "not valid YAML"),
        ("clouds: *hush", "not valid YAML"),
        ("clouds: {c: {<<: hush}}", "not valid YAML"),
        (&"- ".repeat(20_000), "line 1: more than 64 levels of nesting"),
        (&aliases, "line 6: more than 256 KiB with its aliases expanded"),
        (
            "clouds: {c: {interface: other, auth: {auth_url: 'http://k', user_id: u, password: hush}}}",
            "interface = \"other\": must be public or internal or admin",
        ),
        (
            "clouds: {c: {auth: {auth_url: 'http://me:hush@k', user_id: u, password: hush}}}",
            "clouds.yaml: auth_url: must not hold a user or a password",
        ),
        (
            "clouds: {c: {auth: {auth_url: 'http://k', user_id: u, token: hush, project_id: p, password: hush}}}",
            "credentials contradict each other: token and password are set",
        ),
    ] {
        place.put("work/clouds.yaml", text);
        let said = place.refused(USE);
        assert!(said.contains(expect), "{text}: {said}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_yaml_panics(text in "(clouds|[a:{}\\[\\]*&<,'\"\n -]){0,30}") {
        let place = Place::new();
        place.put("work/clouds.yaml", &text);
        place.put("etc/cloud.conf", USE);
        let _read = place.load();
    }
}
