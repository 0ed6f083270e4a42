use super::*;

/// `key=value` pairs, by the names of `clouds.yaml`.
fn given(text: &str) -> Given {
    let mut given = Given::default();
    for pair in text.split_whitespace() {
        let (key, value) = pair.split_once('=').unwrap();
        let field = match key {
            "user_id" => &mut given.user_id,
            "username" => &mut given.username,
            "password" => &mut given.password,
            "project_id" => &mut given.project_id,
            "project_name" => &mut given.project_name,
            "domain_id" => &mut given.domain_id,
            "domain_name" => &mut given.domain_name,
            "project_domain_id" => &mut given.project_domain_id,
            "project_domain_name" => &mut given.project_domain_name,
            "user_domain_id" => &mut given.user_domain_id,
            "user_domain_name" => &mut given.user_domain_name,
            "ac_id" => &mut given.application_credential_id,
            "ac_name" => &mut given.application_credential_name,
            "ac_secret" => &mut given.application_credential_secret,
            "token" => &mut given.token,
            "trust_id" => &mut given.trust_id,
            "trustee_id" => &mut given.trustee_id,
            "trustee_password" => &mut given.trustee_password,
            other => panic!("{other}"),
        };
        *field = Some(value.to_owned());
    }
    given
}

/// The decision in one line, with its secret.
fn decided(given: Given) -> String {
    match given.decide() {
        Ok(Credentials::Password { user, password, scope }) => {
            format!("{} {} {}", one(&user), password.expose(), of(&scope))
        }
        Ok(Credentials::ApplicationCredential { credential, secret }) => {
            let credential = match credential {
                ApplicationCredential::Id(id) => format!("#{id}"),
                ApplicationCredential::Name { name, user } => format!("{name} of {}", one(&user)),
            };
            format!("application {credential} {}", secret.expose())
        }
        Ok(Credentials::Token { token, scope }) => {
            format!("token {} {}", token.expose(), of(&scope))
        }
        Ok(Credentials::Trust { user, password, trust }) => {
            format!("trust {trust} {} {}", one(&user), password.expose())
        }
        Err(missing) => missing.join("; "),
    }
}

fn domain_of(domain: Option<&Domain>) -> String {
    match domain {
        Some(Domain::Id(id)) => format!("@#{id}"),
        Some(Domain::Name(name)) => format!("@{name}"),
        None => String::new(),
    }
}

fn one(user: &User) -> String {
    match user {
        User::Id(id) => format!("#{id}"),
        User::Name { name, domain } => format!("{name}{}", domain_of(domain.as_ref())),
    }
}

fn of(scope: &Scope) -> String {
    match scope {
        Scope::Default => "default".to_owned(),
        Scope::ProjectId(id) => format!("project #{id}"),
        Scope::ProjectName { name, domain } => {
            format!("project {name}{}", domain_of(domain.as_ref()))
        }
        Scope::Domain(domain) => format!("domain {}", domain_of(Some(domain))),
    }
}

#[test]
fn one_way_to_log_in_follows_from_what_is_given() {
    for (text, expect) in [
        ("user_id=u password=p", "#u p default"),
        ("user_id=u username=n password=p project_id=t", "#u p project #t"),
        // A project's ID needs no name and no domain.
        ("user_id=u password=p project_id=t project_name=n domain_id=d", "#u p project #t"),
        // The one domain is for all that have none of their own.
        ("username=u password=p project_name=t domain_name=d", "u@d p project t@d"),
        ("username=u password=p project_name=t domain_id=d domain_name=n", "u@#d p project t@#d"),
        (
            "username=u password=p project_name=t domain_id=d project_domain_name=pd user_domain_id=ud",
            "u@#ud p project t@pd",
        ),
        // Without a project, the domain is what is worked in.
        ("username=u password=p domain_name=d", "u@d p domain @d"),
        ("username=u password=p user_domain_name=d", "u@d p default"),
        ("ac_id=i ac_secret=s", "application #i s"),
        ("ac_id=i ac_name=n ac_secret=s project_id=t", "application #i s"),
        ("ac_name=n ac_secret=s user_id=u", "application n of #u s"),
        ("ac_name=n ac_secret=s username=u domain_name=d", "application n of u@d s"),
        ("token=x project_id=t", "token x project #t"),
        ("token=x domain_id=d", "token x domain @#d"),
        ("trust_id=t user_id=u password=p", "trust t #u p"),
        ("trust_id=t trustee_id=e trustee_password=q user_id=u password=p", "trust t #e q"),
        ("trust_id=t trustee_id=e trustee_password=q username=n", "trust t #e q"),
    ] {
        assert_eq!(decided(given(text)), expect, "{text}");
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
            "token=hush user_domain_id=d",
            "token needs what it is for: tenant-id, or tenant-name with a domain, or domain-id"
                .to_owned(),
        ),
        ("token=hush project_name=t", project.to_owned()),
        (
            "trust_id=t",
            "trust-id needs user-id, or username with a domain; trust-id needs trustee-password or password"
                .to_owned(),
        ),
    ] {
        assert_eq!(decided(given(text)), expect, "{text}");
    }
    for text in ["", "username=u domain_id=d project_id=t", "password="] {
        assert!(decided(given(text)).starts_with("no credentials: set "), "{text}");
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
            let said = decided(given(&format!("{text} {other}")));
            if (*key, *other_key) == ("trust-id", "password") {
                // A trust is used with a password.
                assert_eq!(said, "trust t #e hush");
                continue;
            }
            assert!(!said.contains("hush"), "{said}");
            assert!(said.starts_with("credentials contradict each other: "), "{said}");
            assert!(said.contains(&format!("{key} and {other_key} are set")), "{said}");
        }
    }
    let all = decided(given("trust_id=t ac_id=i token=x password=p"));
    assert!(all.contains("trust-id and application-credential-* and token are set"), "{all}");
}

#[test]
fn another_file_fills_what_is_empty_and_outdoes_nothing() {
    let whole = "user_id=U username=N password=P project_id=T project_name=M domain_id=D";
    for (own, other, expect) in [
        ("", whole, "#U P project #T"),
        ("password=p", whole, "#U p project #T"),
        // An ID from there would outdo the name from here.
        ("username=n user_domain_name=d", whole, "n@d P project #T"),
        ("username=n project_name=t", whole, "n@#D P project t@#D"),
        ("domain_name=d username=n project_name=t", whole, "n@d P project t@d"),
        // So would another way to log in.
        ("ac_id=i ac_secret=s", whole, "application #i s"),
        ("ac_id=i", "ac_id=I ac_secret=S password=P", "application #i S"),
        ("token=x", whole, "token x project #T"),
        ("password=p", "ac_id=I ac_secret=S user_id=U", "#U p default"),
        ("trust_id=t", whole, "trust t #U P"),
        ("user_id=u", "token=X project_id=T", "token X project #T"),
    ] {
        let mut merged = given(own);
        merged.fill_without_contradiction(given(other));
        assert_eq!(decided(merged), expect, "{own} + {other}");
    }
}
