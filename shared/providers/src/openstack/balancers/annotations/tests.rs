use super::*;
use crate::openstack::tests::config;

fn annotations(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect()
}

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::of(&config());
    change(&mut options);
    options
}

#[test]
fn defaults_are_those_of_the_other_controller() {
    let settings = read(&BTreeMap::new(), &options(|_| {})).unwrap();
    assert_eq!(
        (settings.internal, settings.keep_floating, settings.connection_limit),
        (false, false, -1)
    );
    assert_eq!((settings.proxy, settings.forwarded_for, settings.checks), (None, false, None));
    let Timeouts { client_data, member_connect, member_data, tcp_inspect } = settings.timeouts;
    assert_eq!((client_data, member_connect, member_data, tcp_inspect), (50_000, 5_000, 50_000, 0));
    assert_eq!(settings.method.value, "ROUND_ROBIN");
    assert_eq!(settings.networks.floating, FloatingNetwork::Found);
    let monitored = annotations(&[("enable-health-monitor", "true")]);
    let checks = read(&monitored, &options(|_| {})).unwrap().checks;
    let expect = Checks { delay: 5, timeout: 3, max_retries: 1, max_retries_down: 3 };
    assert_eq!(checks, Some(expect));
}

/// An annotation that is there and empty is not the option.
#[test]
fn an_empty_annotation_overrides_the_option() {
    let options = options(|options| {
        options.networks.floating_network_id = Some("net".to_owned());
        options.balancer.flavor_id = Some("flavor".to_owned());
        options.balancer.default_tls_container = Some("https://b/v1/secrets/x".to_owned());
    });
    let plain = read(&BTreeMap::new(), &options).unwrap();
    assert!(plain.flavor.is_some() && plain.tls.is_some());
    let empty = annotations(&[("flavor-id", ""), ("default-tls-container-ref", "")]);
    let empty = read(&empty, &options).unwrap();
    assert!(empty.flavor.is_none() && empty.tls.is_none() && empty.unmanaged.is_empty());
}

/// Annotation, class, options: in the order of each value.
#[test]
fn the_source_that_counts_first() {
    let options = options(|options| {
        options.networks.subnet_id = Some("of options".to_owned());
        options.networks.member_subnet_id = Some("of options".to_owned());
        let class = LoadBalancerClass {
            subnet_id: Some("of class".to_owned()),
            floating_network_id: Some("of class".to_owned()),
            member_subnet_id: Some("of class".to_owned()),
            ..LoadBalancerClass::default()
        };
        options.classes.insert("dmz".to_owned(), class);
    });
    let own = [("subnet-id", "own"), ("floating-network-id", "own"), ("member-subnet-id", "own")];
    let with_class: Vec<_> = own.iter().copied().chain([("class", "dmz")]).collect();
    for (given, internal, subnet, floating, members) in [
        (&[][..], false, "of options", None, "of options"),
        (&[("class", "dmz")], false, "of class", Some("of class"), "of class"),
        (&own, false, "own", Some("own"), "own"),
        // The class of an external one beats its annotation, but for the members.
        (&with_class, false, "of class", Some("of class"), "own"),
        (&with_class, true, "own", Some("of class"), "own"),
    ] {
        let mut given = annotations(given);
        if internal {
            given.insert(INTERNAL.to_owned(), "true".to_owned());
        }
        let networks = read(&given, &options).unwrap().networks;
        let value = |given: &Option<Given>| given.as_ref().unwrap().value.clone();
        assert_eq!(value(&networks.subnet), subnet, "{given:?}");
        assert_eq!(value(&networks.member_subnet), members, "{given:?}");
        let network = match &networks.floating {
            FloatingNetwork::Named(given) => Some(given.value.as_str()),
            _ => None,
        };
        assert_eq!(network, floating, "{given:?}");
    }
}

#[test]
fn labels_select_nodes() {
    let labels: BTreeMap<String, String> =
        [("a", "1"), ("b", ""), ("c", "x=y")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    for (selector, fits) in [
        ("", true),
        (" , ", true),
        ("a", true),
        ("a=1", true),
        ("a=2", false),
        ("a=1,b", true),
        ("a=1,b=", true),
        ("a=1, c=x=y", true),
        ("a=1,d", false),
        ("d=", false),
    ] {
        assert_eq!(Selector::parse(selector).matches(&labels), fits, "{selector:?}");
    }
}
