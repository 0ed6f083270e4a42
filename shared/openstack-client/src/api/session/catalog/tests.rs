use serde_json::json;

use super::*;

fn catalog() -> Catalog {
    let endpoint = |interface: &str, region: &str, id: &str, url: &str| json!({ "interface": interface, "region": region, "region_id": id, "url": url });
    let entries = json!([
        { "type": "volumev3", "endpoints": [endpoint("public", "one", "one", "http://cinder")] },
        { "type": "compute", "name": "nova", "endpoints": [
            endpoint("admin", "one", "one", "http://nova/admin"),
            endpoint("internal", "two", "two", "http://nova/internal-two"),
            endpoint("public", "two", "two", "http://nova/two"),
            endpoint("public", "one", "one", "http://nova/one"),
            endpoint("public", "one", "one", "http://nova/one-again"),
            endpoint("publicURL", "The Third", "three", "http://nova/three"),
        ] },
        { "type": "network", "endpoints": [
            "garbage",
            { "interface": "public", "url": 7 },
            { "interface": "public", "region": null, "url": "http://neutron" },
        ] },
        { "no": "type" },
        17,
    ]);
    let Value::Array(entries) = entries else { unreachable!() };
    Catalog::read(entries)
}

#[test]
fn the_first_endpoint_that_fits_is_taken() {
    use Interface::{Admin, Internal, Public};
    use Service::{Compute, Identity, Network};
    let catalog = catalog();
    let check = |service, interface, region: Option<&str>, expect: Option<&str>| {
        let found = catalog.url(service, interface, region);
        assert_eq!(found.as_ref().ok().copied(), expect, "{service:?} {interface:?} {region:?}");
    };
    check(Compute, Public, None, Some("http://nova/two"));
    check(Compute, Public, Some("one"), Some("http://nova/one"));
    check(Compute, Public, Some("two"), Some("http://nova/two"));
    check(Compute, Public, Some("three"), Some("http://nova/three"));
    check(Compute, Public, Some("The Third"), Some("http://nova/three"));
    check(Compute, Public, Some("One"), None);
    check(Compute, Public, Some(""), None);
    check(Compute, Internal, None, Some("http://nova/internal-two"));
    check(Compute, Internal, Some("one"), None);
    check(Compute, Admin, Some("one"), Some("http://nova/admin"));
    check(Network, Public, None, Some("http://neutron"));
    check(Network, Public, Some("one"), None);
    check(Identity, Public, None, None);
}

#[test]
fn what_is_missing_is_said_with_what_there_is() {
    let message = |catalog: &Catalog, service| {
        catalog.url(service, Interface::Internal, Some("one")).unwrap_err().message
    };
    let head = "the catalog has no compute endpoint for interface internal in region \"one\"; set region and os-endpoint-type to one of its endpoints: ";
    let there = "admin in \"one\", internal in \"two\", public in \"one\", public in \"two\", publicURL in \"three\"";
    assert_eq!(message(&catalog(), Service::Compute), format!("{head}{there}"));
    let none = message(&catalog(), Service::Identity);
    assert!(none.ends_with("one of its endpoints: it has no endpoint at all"), "{none}");
    let empty = message(&Catalog::default(), Service::Compute);
    assert!(empty.ends_with("it is empty, as for a token without a project"), "{empty}");
}
