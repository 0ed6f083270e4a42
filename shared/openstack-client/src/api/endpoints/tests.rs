use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn keystone_is_found_below_any_auth_url() {
    let check = |auth_url: &str, expect: &str| {
        let base = identity(&url(auth_url)).unwrap();
        assert_eq!(base.as_str(), expect, "{auth_url}");
    };
    check("http://k:5000", "http://k:5000/v3/");
    check("http://k:5000/v3", "http://k:5000/v3/");
    check("http://k:5000/v3/", "http://k:5000/v3/");
    check("http://k:5000/v3/auth/tokens", "http://k:5000/v3/");
    check("https://k/identity", "https://k/identity/v3/");
    check("https://k/identity/v3?x=1#y", "https://k/identity/v3/");
    check("http://[::1]:5000/", "http://[::1]:5000/v3/");
    for wrong in ["http://k:5000/v2.0", "http://k/v2.0/", "ftp://k", "file:///v3"] {
        let error = identity(&url(wrong)).unwrap_err();
        assert!(
            error.message.contains("identity") || error.message.contains("auth-url"),
            "{error}"
        );
    }
}

#[test]
fn neutron_is_version_two_below_its_url() {
    let check = |catalog: &str, expect: &str| {
        assert_eq!(network(catalog).unwrap().as_str(), expect, "{catalog}");
    };
    check("http://n:9696", "http://n:9696/v2.0/");
    check("http://n:9696/", "http://n:9696/v2.0/");
    check("http://n:9696/v2.0", "http://n:9696/v2.0/");
    check("https://n/networking/v2.0/", "https://n/networking/v2.0/");
    check("https://n/networking", "https://n/networking/v2.0/");
    for wrong in [
        "",
        "neutron",
        "//n",
        "http://",
        "http://n/%(tenant_id)s",
        "http://n/$(project_id)s",
        "unix:/x",
    ] {
        assert_eq!(network(wrong).unwrap_err().kind, ErrorKind::Malformed, "{wrong}");
    }
}

#[test]
fn the_version_is_cut_out_of_a_url() {
    let check = |text: &str, expect: Option<&str>| {
        let cut = up_to_version(&url(text)).map(String::from);
        assert_eq!(cut.as_deref(), expect, "{text}");
    };
    check("http://n/v2.1/", Some("http://n/v2.1/"));
    check("http://n/v2.1/0a1b/", Some("http://n/v2.1/"));
    check("http://n/compute/v2/p/", Some("http://n/compute/v2/"));
    check("http://n/compute/", None);
    check("http://n/volume/", None);
    check("http://n/v/", None);
}

#[test]
fn the_microversion_is_ours_or_the_nearest() {
    let check = |document: &str, expect: Option<(&str, Option<&str>)>| {
        let document: VersionDocument = serde_json::from_str(document).unwrap();
        let found = document.newest();
        let found = found.map(|found| (found.id.clone(), found.chosen().map(|v| v.to_string())));
        let found = found.as_ref().map(|(id, chosen)| (id.as_str(), chosen.as_deref()));
        assert_eq!(found, expect);
    };
    let one = |min: &str, max: &str| {
        format!(
            "{{\"version\": {{\"id\": \"v2.1\", \"version\": \"{max}\", \"min_version\": \"{min}\"}}}}"
        )
    };
    check(&one("2.1", "2.104"), Some(("v2.1", Some("2.79"))));
    check(&one("2.1", "2.79"), Some(("v2.1", Some("2.79"))));
    check(&one("2.1", "2.9"), Some(("v2.1", Some("2.9"))));
    check(&one("2.90", "2.104"), Some(("v2.1", Some("2.90"))));
    check(&one("2.104", "2.90"), Some(("v2.1", Some("2.90"))));
    check(&one("", ""), Some(("v2.1", None)));
    check(&one("x", "2.x"), Some(("v2.1", None)));
    check(
        "{\"versions\": [{\"id\": \"v2.0\", \"version\": \"\"}, {\"id\": \"v2.1\", \"version\": \"2.60\"}, 7]}",
        Some(("v2.1", Some("2.60"))),
    );
    check("{\"versions\": [{\"id\": \"../etc\", \"version\": \"2.1\"}]}", None);
    check("{}", None);
}
