use super::*;
use crate::{config::LoadBalancerClass, tests::config};

fn annotations(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned())).collect()
}

fn options(change: impl FnOnce(&mut Config)) -> Config {
    let mut options = config();
    change(&mut options);
    options
}

#[test]
fn defaults_are_those_of_the_other_controller() {
    let settings = read(&BTreeMap::new(), &options(|_| {}), Traffic::Cluster).unwrap();
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
    let checks = read(&monitored, &options(|_| {}), Traffic::Cluster).unwrap().checks;
    let expect = Checks { delay: 5, timeout: 3, max_retries: 1, max_retries_down: 3 };
    assert_eq!(checks, Some(expect));
}

/// An empty annotation overrides the option.
#[test]
fn an_empty_annotation_overrides_the_option() {
    let options = options(|options| {
        options.networks.floating_network_id = Some("net".to_owned());
        options.load_balancer.flavor_id = Some("flavor".to_owned());
        options.load_balancer.default_tls_container = Some("https://b/v1/secrets/x".to_owned());
    });
    let plain = read(&BTreeMap::new(), &options, Traffic::Cluster).unwrap();
    assert!(plain.flavor.is_some() && plain.tls.is_some());
    let empty = annotations(&[("flavor-id", ""), ("default-tls-container-ref", "")]);
    let empty = read(&empty, &options, Traffic::Cluster).unwrap();
    assert!(empty.flavor.is_none() && empty.tls.is_none() && empty.unmanaged.is_empty());
}

/// Tests the order of annotation, class and options for each value.
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
        // The class of an external load balancer beats its annotation, except for the members.
        (&with_class, false, "of class", Some("of class"), "own"),
        (&with_class, true, "own", Some("of class"), "own"),
    ] {
        let mut given = annotations(given);
        if internal {
            given.insert(INTERNAL.to_owned(), "true".to_owned());
        }
        let networks = read(&given, &options, Traffic::Cluster).unwrap().networks;
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

/// The first source that chooses the subnet of floating IPs counts, by its ID or else by pattern
/// and tags, which are not managed yet.
#[test]
fn only_an_id_of_the_same_or_an_earlier_source_hides_a_pattern() {
    const CLASS: &str = "[LoadBalancerClass \"dmz\"] floating-subnet";
    const OWN: &str = "annotation loadbalancer.openstack.org/floating-subnet";
    const CONF: &str = "[LoadBalancer] floating-subnet";
    type Values = (Option<&'static str>, Option<&'static str>);
    let none: Values = (None, None);
    let (id, pattern, both): (Values, Values, Values) =
        ((Some("id"), None), (None, Some("p*")), (Some("id"), Some("p*")));
    let (no_id, no_pattern): (Values, Values) = ((Some(""), None), (None, Some("")));
    for (of_class, own, conf, expect) in [
        (none, none, none, Ok(None)),
        (none, none, id, Ok(Some(CONF))),
        (none, none, both, Ok(Some(CONF))),
        (none, none, pattern, Err(CONF)),
        (none, pattern, none, Err(OWN)),
        // The pattern of the Service is not the global one.
        (none, pattern, id, Err(OWN)),
        (none, both, id, Ok(Some(OWN))),
        (none, id, pattern, Ok(Some(OWN))),
        (pattern, id, none, Err(CLASS)),
        (pattern, none, id, Err(CLASS)),
        (id, pattern, none, Ok(Some(CLASS))),
        (id, pattern, pattern, Ok(Some(CLASS))),
        // An empty annotation does not fall back to the option of the same name.
        (none, no_id, id, Ok(None)),
        (none, no_id, pattern, Err(CONF)),
        (none, no_pattern, pattern, Ok(None)),
        (none, no_pattern, id, Ok(Some(CONF))),
    ] {
        let text = |value: Option<&str>| value.map(str::to_owned);
        let networks = |(id, pattern): Values| LoadBalancerClass {
            floating_subnet_id: text(id),
            floating_subnet: text(pattern),
            ..LoadBalancerClass::default()
        };
        let options = options(|options| {
            options.networks = networks(conf);
            options.classes.insert("dmz".to_owned(), networks(of_class));
        });
        let given = [("floating-subnet-id", own.0), ("floating-subnet", own.1)];
        let given: Vec<_> =
            given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let given: Vec<_> = given.into_iter().chain([("class", "dmz")]).collect();
        let settings = read(&annotations(&given), &options, Traffic::Cluster).unwrap();
        let id = settings.networks.floating_subnet.map(|given| given.source.to_string());
        let patterns: Vec<_> =
            settings.unmanaged.iter().map(|one| one.source.to_string()).collect();
        match expect {
            Ok(source) => {
                assert_eq!(id, source.map(|source| format!("{source}-id")), "{given:?} {conf:?}");
                assert_eq!(patterns, [""; 0], "{given:?} {conf:?}");
            }
            Err(source) => {
                assert_eq!(patterns, [source], "{given:?} {conf:?}");
                assert_eq!(id, None, "{given:?} {conf:?}");
            }
        }
    }
}

#[test]
fn what_is_said_of_classes_is_one_line() {
    let options = options(|options| {
        options.classes.insert("d\u{7f}m\u{85}z".to_owned(), LoadBalancerClass::default());
    });
    let error = read(&annotations(&[("class", "no\nne")]), &options, Traffic::Cluster).unwrap_err();
    assert!(!error.message.contains(char::is_control), "{error}");
    assert!(error.message.contains("cloud.conf has d"), "{error}");
}
