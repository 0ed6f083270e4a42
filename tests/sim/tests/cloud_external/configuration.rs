//! The configuration file, at start and while running.

use std::time::Duration;

use ccm_cloud::{ErrorKind, ProviderContext, ProviderFactory as _};
use ccm_external::ExternalFactory;
use ccm_sim::cloud::SimCloud;

use crate::place::{Place, Served, Stub, call, instances, skip, until};

#[tokio::test]
async fn an_invalid_configuration_is_rejected_in_one_line() {
    let place = Place::new();
    let https = "endpoint: https://localhost:1\ntls: ";
    let pem = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap();
    place.write("cert.pem", pem.cert.pem());
    place.write("key.pem", pem.signing_key.serialize_pem());
    place.write("other.pem", rcgen::KeyPair::generate().unwrap().serialize_pem());
    place.write("empty.pem", "");
    for (text, expect) in [
        ("endpont: unix:///s".to_owned(), "did you mean endpoint?"),
        (format!("{https}{{ca: none.pem}}"), "none.pem: there is no such file"),
        (format!("{https}{{ca: empty.pem}}"), "tls.ca: "),
        (format!("{https}{{ca: key.pem}}"), "holds no certificate in PEM form"),
        (format!("{https}{{ca: cert.pem, cert: key.pem, key: key.pem}}"), "tls.cert: "),
        (
            format!("{https}{{ca: cert.pem, cert: cert.pem, key: cert.pem}}"),
            "holds no private key in PEM form",
        ),
        (
            format!("{https}{{ca: cert.pem, cert: cert.pem, key: none.pem}}"),
            "none.pem: there is no such file",
        ),
        (format!("{https}{{ca: cert.pem, cert: cert.pem, key: other.pem}}"), "KeyMismatch"),
        (
            format!("{https}{{ca: cert.pem, serverName: 'a b'}}"),
            "tls.serverName = \"a b\": is not a host name or address",
        ),
    ] {
        place.write("cloud.yaml", &text);
        let error = place.client().await.err().unwrap_or_else(|| panic!("{text} was accepted"));
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.message.contains(expect), "{text:?}: {error}");
        assert!(error.message.contains("cloud.yaml"), "{error}");
        assert_eq!(error.message.lines().count(), 1, "{error}");
    }
}

#[tokio::test]
async fn without_a_file_nothing_is_built() {
    let context = ProviderContext::ungated(None, "test/1");
    let error = ExternalFactory.build(context).await.err().expect("no file is given");
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("--cloud-config: missing"), "{error}");
}

#[tokio::test]
async fn a_changed_file_is_used_unless_it_is_invalid() {
    let place = Place::new();
    let (first, second) = (place.socket("first"), place.socket("second"));
    let sim = SimCloud::new();
    let _one = Served::start(sim.clone(), &first, None).await;
    let _two = Served::start(Stub::offering("second", Ok(None)), &second, None).await;
    place.configure(&first);
    let cloud = place.client().await.unwrap();
    let old = instances(&cloud).await;
    assert_eq!(cloud.schemes(), ["sim"]);

    place.write("cloud.yaml", "endpoint: nowhere");
    skip(Duration::from_secs(11)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cloud.schemes(), ["sim"]);
    old.list(call()).await.expect("the old configuration stays in use");

    place.configure(&second);
    skip(Duration::from_secs(11)).await;
    until("the second provider is in use", || (cloud.schemes() == ["second"]).then_some(())).await;
    assert!(matches!(cloud.instances(), Ok(None)));
}
