use std::{fs::File, os::unix::fs::FileExt as _};

use super::*;

fn secret(text: &str) -> Secret {
    Secret::new(text)
}

fn domain() -> Domain {
    Domain::Name("Default".to_owned())
}

fn user(name: &str) -> User {
    User::Name { name: name.to_owned(), domain: domain() }
}

fn id(text: &str) -> User {
    User::Id(text.to_owned())
}

fn all() -> Vec<Credentials> {
    let project = || Scope::ProjectName { name: "k8s".to_owned(), domain: domain() };
    let own = Domain::Id("d1".to_owned());
    let scopes = [
        Scope::Default,
        Scope::ProjectId("p1".to_owned()),
        project(),
        Scope::ProjectName { name: "k8s".to_owned(), domain: own.clone() },
    ];
    let mut all: Vec<_> = scopes
        .into_iter()
        .map(|scope| Credentials::Password { user: id("u1"), password: secret("pw"), scope })
        .collect();
    let with_domain = |domain| User::Name { name: "ann".to_owned(), domain };
    for user in [user("ann"), with_domain(own)] {
        all.push(Credentials::Password { user, password: secret("p\"w"), scope: project() });
    }
    let by_id = ApplicationCredential::Id("a1".to_owned());
    let by_name = ApplicationCredential::Name { name: "ccm".to_owned(), user: user("ann") };
    all.extend([
        Credentials::ApplicationCredential { credential: by_id, secret: secret("s") },
        Credentials::ApplicationCredential { credential: by_name, secret: secret("s") },
        Credentials::Token { token: secret("t"), scope: project() },
        Credentials::Trust { user: id("u2"), password: secret("pw"), trust: "t1".to_owned() },
    ]);
    all
}

#[test]
fn bodies_by_method() {
    let url = Url::parse("https://me:hidden@keystone:5000").unwrap();
    let lines: Vec<String> = all()
        .into_iter()
        .map(|credentials| {
            let login = Login::new(&url, &url, credentials);
            assert_eq!(login.auth_url, "https://keystone:5000/");
            let method = login.method();
            assert!(!method.contains("pw") && !method.contains("p\"w"));
            format!("{method}: {}", String::from_utf8_lossy(&login.body()))
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    password of user "u1": {"auth":{"identity":{"methods":["password"],"password":{"user":{"id":"u1","password":"pw"}}}}}
    password of user "u1" for project "p1": {"auth":{"identity":{"methods":["password"],"password":{"user":{"id":"u1","password":"pw"}}},"scope":{"project":{"id":"p1"}}}}
    password of user "u1" for project "k8s": {"auth":{"identity":{"methods":["password"],"password":{"user":{"id":"u1","password":"pw"}}},"scope":{"project":{"domain":{"name":"Default"},"name":"k8s"}}}}
    password of user "u1" for project "k8s": {"auth":{"identity":{"methods":["password"],"password":{"user":{"id":"u1","password":"pw"}}},"scope":{"project":{"domain":{"id":"d1"},"name":"k8s"}}}}
    password of user "ann" for project "k8s": {"auth":{"identity":{"methods":["password"],"password":{"user":{"domain":{"name":"Default"},"name":"ann","password":"p\"w"}}},"scope":{"project":{"domain":{"name":"Default"},"name":"k8s"}}}}
    password of user "ann" for project "k8s": {"auth":{"identity":{"methods":["password"],"password":{"user":{"domain":{"id":"d1"},"name":"ann","password":"p\"w"}}},"scope":{"project":{"domain":{"name":"Default"},"name":"k8s"}}}}
    application credential "a1": {"auth":{"identity":{"application_credential":{"id":"a1","secret":"s"},"methods":["application_credential"]}}}
    application credential "ccm" of user "ann": {"auth":{"identity":{"application_credential":{"name":"ccm","secret":"s","user":{"domain":{"name":"Default"},"name":"ann"}},"methods":["application_credential"]}}}
    token for project "k8s": {"auth":{"identity":{"methods":["token"],"token":{"id":"t"}},"scope":{"project":{"domain":{"name":"Default"},"name":"k8s"}}}}
    trust "t1" and password of user "u2": {"auth":{"identity":{"methods":["password"],"password":{"user":{"id":"u2","password":"pw"}}},"scope":{"OS-TRUST:trust":{"id":"t1"}}}}
    "#);
}

#[test]
fn nothing_secret_is_printed() {
    for credentials in all() {
        let text = format!("{credentials:?}");
        assert!(text.contains("***") && !text.contains("pw") && !text.contains("\"s\""), "{text}");
    }
}

/// The content of memory that a core dump or the next owner of the memory would see.
#[test]
fn secrets_are_wiped_from_memory() {
    let mut found = vec![0; 240];
    let memory = File::open("/proc/self/mem").unwrap();
    let mut holds = |at: usize, text: &str| {
        memory.read_exact_at(&mut found, at as u64).unwrap();
        // An allocator writes into the beginning of freed memory.
        found.iter().zip(text.as_bytes()).skip(100).all(|(found, byte)| found == byte)
    };
    let text = "hunter".repeat(40);
    let secret = secret(&text);
    let at = secret.expose().as_ptr() as usize;
    assert!(holds(at, &text));
    drop(secret);
    assert!(!holds(at, &text), "a secret stays");

    let url = Url::parse("https://k").unwrap();
    let password = Secret::new(text.clone());
    let credentials =
        Credentials::Password { user: id("u"), password, scope: Scope::ProjectId("p".to_owned()) };
    let body = Login::new(&url, &url, credentials).body();
    let start = body.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
    let at = body.as_ptr() as usize + start;
    assert!(holds(at, &text));
    let shared = body.slice(start..);
    drop(body);
    assert!(holds(at, &text), "it is still to be sent");
    drop(shared);
    assert!(!holds(at, &text), "a body stays");
}
