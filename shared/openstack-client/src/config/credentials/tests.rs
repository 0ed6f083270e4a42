use ccm_settings::{RawValue, Schema as _};

use super::*;
use crate::config::merged;

/// Reads `key=value` pairs, by the names of `clouds.yaml`; `ac` is an application credential.
fn given(text: &str) -> Given {
    let pair = |pair: &str| {
        let (name, text) = pair.split_once('=').unwrap();
        let name = name.replace("ac_", "application_credential_");
        let key = name.replace("project", "tenant").replace('_', "-");
        let setting = Login::TABLE.iter().find(|setting| setting.flag == key).unwrap();
        (setting.flag, RawValue::at(setting.flag, setting.kind, text))
    };
    text.split_whitespace().map(pair).collect()
}

fn login(given: &Given) -> Login {
    let mut problems = Problems::default();
    Login::read(&merged(given, &mut problems), &mut problems).unwrap()
}

/// Returns the decision in one line, with its secret.
fn decided(given: &Given) -> String {
    let mut problems = Problems::default();
    let Some(credentials) = login(given).decide(&mut problems) else {
        return problems.in_one_line().replace("[Global]: ", "");
    };
    assert!(problems.is_empty(), "{problems}");
    match credentials {
        Credentials::Password { user, password, scope } => {
            format!("{} {} {}", one(&user), password.expose(), of(&scope))
        }
        Credentials::ApplicationCredential { credential, secret } => {
            let credential = match credential {
                ApplicationCredential::Id(id) => format!("#{id}"),
                ApplicationCredential::Name { name, user } => format!("{name} of {}", one(&user)),
            };
            format!("application {credential} {}", secret.expose())
        }
        Credentials::Token { token, scope } => {
            format!("token {} {}", token.expose(), of(&scope))
        }
        Credentials::Trust { user, password, trust } => {
            format!("trust {trust} {} {}", one(&user), password.expose())
        }
    }
}

fn domain_of(domain: &Domain) -> String {
    match domain {
        Domain::Id(id) => format!("@#{id}"),
        Domain::Name(name) => format!("@{name}"),
    }
}

fn one(user: &User) -> String {
    match user {
        User::Id(id) => format!("#{id}"),
        User::Name { name, domain } => format!("{name}{}", domain_of(domain)),
    }
}

fn of(scope: &Scope) -> String {
    match scope {
        Scope::Default => "default".to_owned(),
        Scope::ProjectId(id) => format!("project #{id}"),
        Scope::ProjectName { name, domain } => {
            format!("project {name}{}", domain_of(domain))
        }
    }
}

#[test]
fn one_way_to_log_in_follows_from_what_is_given() {
    for (text, expect) in [
        ("user_id=u password=p", "#u p default"),
        ("user_id=u username=n password=p project_id=t", "#u p project #t"),
        // A project's ID needs no name and no domain.
        ("user_id=u password=p project_id=t project_name=n domain_id=d", "#u p project #t"),
        // The one domain is for the user and the project if they have no separate domain.
        ("username=u password=p project_name=t domain_name=d", "u@d p project t@d"),
        ("username=u password=p project_name=t domain_id=d domain_name=n", "u@#d p project t@#d"),
        (
            "username=u password=p project_name=t domain_id=d project_domain_name=pd user_domain_id=ud",
            "u@#ud p project t@pd",
        ),
        ("username=u password=p user_domain_name=d", "u@d p default"),
        ("ac_id=i ac_secret=s", "application #i s"),
        ("ac_id=i ac_name=n ac_secret=s project_id=t", "application #i s"),
        ("ac_name=n ac_secret=s user_id=u", "application n of #u s"),
        ("ac_name=n ac_secret=s username=u domain_name=d", "application n of u@d s"),
        ("token=x project_id=t", "token x project #t"),
        ("trust_id=t user_id=u password=p", "trust t #u p"),
        ("trust_id=t trustee_id=e trustee_password=q user_id=u password=p", "trust t #e q"),
        ("trust_id=t trustee_id=e trustee_password=q username=n", "trust t #e q"),
    ] {
        assert_eq!(decided(&given(text)), expect, "{text}");
    }
}

#[test]
fn what_is_missing_is_named_all_at_once() {
    let user = "username needs the user's domain: user-domain-name, user-domain-id, domain-name or domain-id";
    let project = "tenant-name needs the project's domain: tenant-domain-name, tenant-domain-id, domain-name or domain-id";
    for (text, expect) in [
        ("username=u password=hush project_name=t", format!("{user}; {project}")),
        ("password=hush", "password needs user-id, or username with a domain".to_owned()),
        ("ac_id=i", "the application credential needs application-credential-secret".to_owned()),
        (
            "ac_secret=hush",
            "application-credential-secret needs application-credential-id or application-credential-name"
                .to_owned(),
        ),
        (
            "ac_name=n",
            "the application credential needs application-credential-secret; \
             application-credential-name needs user-id, or username with a domain"
                .to_owned(),
        ),
        ("ac_name=n ac_secret=hush username=u", user.to_owned()),
        (
            "token=hush domain_id=d",
            "token needs a project: tenant-id, or tenant-name with a domain".to_owned(),
        ),
        (
            // A token for a domain has no endpoints for servers in its catalog.
            "username=u password=hush domain_name=d",
            "no project is set, and a login for a domain has no servers: set tenant-id, or tenant-name"
                .to_owned(),
        ),
        ("token=hush project_name=t", project.to_owned()),
        (
            "trust_id=t",
            "trust-id needs user-id, or username with a domain; trust-id needs trustee-password or password"
                .to_owned(),
        ),
    ] {
        assert_eq!(decided(&given(text)), expect, "{text}");
    }
    for text in ["", "username=u domain_id=d project_id=t", "password="] {
        assert!(decided(&given(text)).starts_with("no credentials: set "), "{text}");
    }
}

#[test]
fn every_two_ways_to_log_in_contradict_each_other() {
    let ways = [
        ("trust-id", "trust_id=t trustee_id=e trustee_password=hush"),
        ("application-credential-*", "ac_id=i ac_secret=hush"),
        ("token", "token=hush project_id=t"),
        ("password", "user_id=u password=hush"),
    ];
    for (first, (key, text)) in ways.iter().enumerate() {
        for (other_key, other) in ways.iter().skip(first + 1) {
            let said = decided(&given(&format!("{text} {other}")));
            if (*key, *other_key) == ("trust-id", "password") {
                // A trust needs a password.
                assert_eq!(said, "trust t #e hush");
                continue;
            }
            assert!(!said.contains("hush"), "{said}");
            assert!(said.starts_with("credentials contradict each other: "), "{said}");
            assert!(said.contains(&format!("{key} and {other_key} are set")), "{said}");
        }
    }
    let all = decided(&given("trust_id=t ac_id=i token=x password=p"));
    assert!(all.contains("trust-id and application-credential-* and token are set"), "{all}");
}

#[test]
fn another_file_fills_what_is_empty_and_outdoes_nothing() {
    let whole = "user_id=U username=N password=P project_id=T project_name=M domain_id=D";
    for (own, other, expect) in [
        ("", whole, "#U P project #T"),
        ("password=p", whole, "#U p project #T"),
        // An ID from there would beat the name from here.
        ("username=n user_domain_name=d", whole, "n@d P project #T"),
        ("username=n project_name=t", whole, "n@#D P project t@#D"),
        ("domain_name=d username=n project_name=t", whole, "n@d P project t@d"),
        // Another way to log in would do so, too.
        ("ac_id=i ac_secret=s", whole, "application #i s"),
        ("ac_id=i", "ac_id=I ac_secret=S password=P", "application #i S"),
        ("token=x", whole, "token x project #T"),
        ("password=p", "ac_id=I ac_secret=S user_id=U", "#U p default"),
        ("trust_id=t", whole, "trust t #U P"),
        ("user_id=u", "token=X project_id=T", "token X project #T"),
    ] {
        let (own_given, mut merged) = (given(own), given(other));
        login(&own_given).keep_fitting(&own_given, &mut merged);
        merged.extend(own_given);
        assert_eq!(decided(&merged), expect, "{own} + {other}");
    }
}
