//! Tests files of `cloud.conf` that other tools generate: the program reports nothing, or one line
//! for each setting that will not work. The files are in `tests/cloud_conf` of this crate, named
//! after their tools.

use super::*;

/// Reads a file, with its `/etc/quartet` in a folder that has its `clouds.yaml`.
fn read(name: &str) -> Result<Vec<String>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cloud_conf");
    let place = Place::new();
    let etc = place.path("etc").display().to_string();
    let text = fs::read_to_string(folder.join(name)).unwrap().replace("/etc/quartet", &etc);
    place.put("etc/cloud.conf", &text);
    place.put("etc/clouds.yaml", &fs::read_to_string(folder.join("clouds.yaml")).unwrap());
    let line = |line: &str| {
        let own = line.strip_prefix("--cloud-config ").unwrap_or(line).replace(&etc, "");
        own.strip_prefix("/cloud.conf: ").map_or(own.clone(), str::to_owned)
    };
    match place.load() {
        Ok(loaded) => Ok(loaded.warnings.iter().map(|text| line(text)).collect()),
        Err(error) => Err(line(&error.message)),
    }
}

const OCTAVIA: &str = "has no effect: Octavia is always used; remove it";
const NO_GROUPS: &str = "\"true\": service-ccm will refuse new load balancers: security groups are not managed yet: set it to false, and open the node ports to the load balancers yourself";
const NO_PATTERNS: &str = "service-ccm will refuse new floating IPs: patterns and tags do not choose the floating subnet yet: set floating-subnet-id instead";
const NO_SHARING: &str = "several Services do not share a load balancer yet: each gets its own";

#[test]
fn files_of_other_tools_are_read_with_a_line_for_what_will_not_work() {
    let gardener = || {
        vec![
            format!("line 19: [LoadBalancer] manage-security-groups = {NO_GROUPS}"),
            format!("line 21: [LoadBalancer] floating-subnet = \"public*\": {NO_PATTERNS}"),
        ]
    };
    for (name, expect) in [
        ("capi-helm.conf", vec![]),
        ("gardener-appcred.conf", gardener()),
        ("gardener-appcred-user.conf", gardener()),
        (
            "helm-chart.conf",
            vec![
                format!("line 20: [LoadBalancer] use-octavia: {OCTAVIA}"),
                format!("line 15: [LoadBalancer] max-shared-lb = \"5\": {NO_SHARING}"),
                format!("line 14: [LoadBalancer] floating-subnet-tags = \"foo,bar\": {NO_PATTERNS}"),
            ],
        ),
        (
            "kubermatic.conf",
            vec![
                format!("line 17: [LoadBalancer] use-octavia: {OCTAVIA}"),
                format!("line 11: [LoadBalancer] manage-security-groups = {NO_GROUPS}"),
                format!("line 27: [LoadBalancerClass] floating-subnet-tags = \"public,v4\": {NO_PATTERNS}"),
            ],
        ),
        ("kubernikus.conf", vec![]),
        (
            "kubespray-appcred.conf",
            vec![
                format!("line 20: [LoadBalancer] use-octavia: {OCTAVIA}"),
                format!("line 21: [LoadBalancer] max-shared-lb = \"3\": {NO_SHARING}"),
            ],
        ),
        ("lb-disabled.conf", vec![]),
        ("magnum.conf", vec![format!("line 9: [LoadBalancer] use-octavia: {OCTAVIA}")]),
        (
            "openshift.conf",
            vec![
                "/clouds.yaml: verify of the entry \"openstack\" is not read; set tls-insecure = true in [Global]".to_owned(),
                format!("line 8: [LoadBalancer] manage-security-groups = {NO_GROUPS}"),
            ],
        ),
    ] {
        assert_eq!(read(name), Ok(expect), "{name}");
    }
}

#[test]
fn files_of_other_tools_that_no_login_follows_from_are_refused() {
    for (name, expect) in [
        (
            "kubespray-appcred-name.conf",
            format!(
                "[Global]: application-credential-name needs user-id, or username with a domain; \
                 also line 15: [LoadBalancer] use-octavia: {OCTAVIA}"
            ),
        ),
        (
            "occm-sample.conf",
            "[Global]: username needs the user's domain: user-domain-name, user-domain-id, \
             domain-name or domain-id"
                .to_owned(),
        ),
    ] {
        assert_eq!(read(name), Err(expect), "{name}");
    }
}

#[test]
fn files_with_a_trap_are_read_with_a_line_for_it() {
    for (name, expect) in [
        (
            "password-hash.conf",
            vec!["line 4: [Global] password: is cut off at # or ;, which begins a comment: if that belongs to the value, put it in double quotes".to_owned()],
        ),
        (
            "password-single-quotes.conf",
            vec!["line 4: [Global] password: begins with ' or `, which quotes nothing here and is a part of the value: use double quotes".to_owned()],
        ),
        (
            "project-instead-of-tenant.conf",
            vec![
                "line 6: [Global] project-id: unknown key; its name here is tenant-id".to_owned(),
                "line 7: [Global] project-name: unknown key; its name here is tenant-name".to_owned(),
                "line 8: [Global] project-domain-name: unknown key; its name here is tenant-domain-name".to_owned(),
                "[Global]: no project is set, so the login is for the user's default project, if there is one: set tenant-id, or tenant-name with its domain".to_owned(),
            ],
        ),
    ] {
        assert_eq!(read(name), Ok(expect), "{name}");
    }
}
