//! Tests unknown annotations, and the names that the user meant.

use ccm_cloud::{ErrorKind, LoadBalancers as _, Note, Progress, Wanted};

use super::rig::{Rig, annotated, wanted, with};

const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
const MISSPELT: &str = "service.beta.kubernetes.io/openstack-internal-loadbalancers";

async fn remarks(web: &Wanted) -> Vec<Note> {
    let rig = Rig::new();
    let done = rig.settle(web).await;
    done.notes.into_iter().filter(|note| note.reason == "UnknownAnnotation").collect()
}

#[tokio::test]
async fn an_unknown_annotation_names_what_was_meant() {
    const NEW: &str = "loadbalancer.openstack.org/";
    const OLD: &str = "service.beta.kubernetes.io/openstack-";
    for (prefix, name, meant) in [
        (NEW, "proxy-protocl", Some("loadbalancer.openstack.org/proxy-protocol")),
        (NEW, "keep_floatingip", Some("loadbalancer.openstack.org/keep-floatingip")),
        (NEW, "floating-ip", Some("spec.loadBalancerIP")),
        (NEW, "load-balancer-ip", Some("spec.loadBalancerIP")),
        (NEW, "source-ranges", Some("spec.loadBalancerSourceRanges")),
        (NEW, "health-check", Some("loadbalancer.openstack.org/enable-health-monitor")),
        (NEW, "flavor", Some("loadbalancer.openstack.org/flavor-id")),
        (OLD, "floating-network-id", Some("loadbalancer.openstack.org/floating-network-id")),
        (NEW, "colour", None),
        (OLD, "colour", None),
        (OLD, "external-load-balancer", None),
    ] {
        let key = format!("{prefix}{name}");
        let notes = remarks(&with(&wanted("web"), &key, "true")).await;
        let [Note { message, warning: true, .. }] = &notes[..] else { panic!("{key}: {notes:?}") };
        assert!(message.contains(&format!("annotation {key} ")), "{message}");
        match meant {
            Some(meant) => {
                assert!(message.ends_with(&format!("did you mean {meant}?")), "{message}");
            }
            None => assert!(!message.contains("mean"), "{message}"),
        }
    }
    // A misspelt annotation is not configuration. The correct one is.
    let traits = Rig::new().balancers.traits();
    for (key, expect) in [(INTERNAL, true), (MISSPELT, false)] {
        assert!(traits.passes(key), "{key}");
        assert_eq!(traits.configures(key), expect, "{key}");
    }
    // The provider ignores annotations of other clouds.
    for key in ["service.beta.kubernetes.io/aws-load-balancer-internal", "example.com/openstack"] {
        assert!(!traits.passes(key), "{key}");
    }
}

#[tokio::test]
async fn remarks_on_names_are_few() {
    let mut web = wanted("web");
    for number in 0..5_000 {
        web = annotated(&web, &format!("zz-{number:04}"), "x");
    }
    let notes = remarks(&with(&web, MISSPELT, "false")).await;
    assert_eq!(notes.len(), 11);
    assert!(notes[0].message.contains(MISSPELT), "{:?}", notes[0]);
    assert!(notes[9].message.contains("/zz-0008 "), "{:?}", notes[9]);
    assert!(notes[10].message.contains("and 4991 more"), "{:?}", notes[10]);
}

/// A user who asks for an internal load balancer must not get a public one by a misspelling.
#[tokio::test]
async fn a_misspelt_internal_annotation_makes_nothing_public() {
    for key in [
        MISSPELT,
        "service.beta.kubernetes.io/openstack-internal-lb",
        "service.beta.kubernetes.io/openstack-Internal-Load-Balancer",
        "loadbalancer.openstack.org/internal",
        "loadbalancer.openstack.org/internal-load-balancer",
    ] {
        let rig = Rig::new();
        let error = rig.ensure(&with(&wanted("web"), key, "true")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        for part in [key, INTERNAL] {
            assert_eq!(error.to_string().matches(part).count(), 1, "{part}: {error}");
        }
        assert!(rig.rows("balancers").is_empty() && rig.cloud.world.lock().floating.ips.is_empty());
        assert!(rig.preview(&with(&wanted("web"), key, "true")).await.is_err());
        // An existing load balancer stays, and a lost load balancer is created again.
        let web = rig.settle(&wanted("web")).await;
        let misspelt = with(&wanted("web"), key, "true");
        let done = rig.settle(&misspelt).await;
        assert_eq!((done.id, done.ingress), (web.id.clone(), web.ingress));
        let [Note { message, warning: true, .. }] = &done.notes[..] else {
            panic!("{:?}", done.notes)
        };
        assert!(message.contains(key) && message.contains(INTERNAL), "{message}");
        rig.remove(&web.id);
        let known = Wanted { known: Some(web.id), ..misspelt };
        // Without an address at clients, it may have been an internal one.
        let error = rig.ensure(&known).await.unwrap_err();
        assert!(error.message.contains(key), "{error}");
        let shown = rig.cloud.world.lock().floating.ips[0]["floating_ip_address"].clone();
        let shown = shown.as_str().unwrap().parse().unwrap();
        let known = Wanted { shown: vec![shown], ..known };
        assert!(matches!(rig.ensure(&known).await, Ok(Progress::InProgress(_))));
    }
    // The misspelling does no harm: the correct annotation exists as well, or the misspelt one asks
    // for a public load balancer.
    for (key, value) in [(INTERNAL, "true"), ("example.com/x", "")] {
        let web = with(&wanted("web"), MISSPELT, if key == INTERNAL { "true" } else { "false" });
        let web = if key == INTERNAL { with(&web, key, value) } else { web };
        assert_eq!(remarks(&web).await.len(), 1);
    }
}

/// A value of the internal annotation that cannot be read makes nothing public either.
#[tokio::test]
async fn an_unreadable_value_of_the_internal_annotation_makes_nothing_public() {
    for value in ["", "yes", "True", "1"] {
        let rig = Rig::new();
        let unreadable = with(&wanted("web"), INTERNAL, value);
        let error = rig.ensure(&unreadable).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert_eq!(error.to_string().matches(INTERNAL).count(), 1, "{error}");
        assert!(error.message.contains(&format!("{value:?} is neither true nor false")), "{error}");
        assert_eq!(rig.preview(&unreadable).await, Err(error));
        assert!(rig.rows("balancers").is_empty() && rig.cloud.world.lock().floating.ips.is_empty());
        // A public load balancer stays public, with a remark.
        let web = rig.settle(&wanted("web")).await;
        let done = rig.settle(&unreadable).await;
        assert_eq!((done.id, done.ingress), (web.id, web.ingress));
        let [Note { message, warning: true, .. }] = &done.notes[..] else {
            panic!("{:?}", done.notes)
        };
        assert!(message.contains(INTERNAL) && message.contains("true or false"), "{message}");
    }
}

#[tokio::test]
async fn an_internal_load_balancer_stays_internal_by_a_misspelling() {
    for (key, value) in [(INTERNAL, "True"), (INTERNAL, ""), (MISSPELT, "true")] {
        let rig = Rig::new();
        let internal = rig.settle(&with(&wanted("web"), INTERNAL, "true")).await;
        let done = rig.settle(&with(&wanted("web"), key, value)).await;
        assert_eq!((done.id, done.ingress), (internal.id, internal.ingress), "{key}={value}");
        assert!(rig.cloud.world.lock().floating.ips.is_empty(), "{key}={value}");
        assert_eq!(done.notes.len(), 1, "{:?}", done.notes);
        // It becomes public when the annotation says so.
        rig.settle(&with(&wanted("web"), INTERNAL, "false")).await;
        assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
    }
}

/// A floating IP that the Service kept when it became internal is free, and would be attached again.
#[tokio::test]
async fn a_kept_floating_ip_makes_no_internal_load_balancer_public_by_a_misspelling() {
    for (key, value) in [(INTERNAL, "True"), (MISSPELT, "true")] {
        let rig = Rig::new();
        let keep = annotated(&wanted("web"), "keep-floatingip", "true");
        rig.settle(&keep).await;
        let internal = rig.settle(&with(&keep, INTERNAL, "true")).await;
        let is_free = |rig: &Rig| rig.cloud.world.lock().floating.ips[0]["port_id"].is_null();
        assert!(is_free(&rig));
        let rig = rig.restarted();
        let misspelt = with(&keep, key, value);
        let done = rig.settle(&misspelt).await;
        assert_eq!((&done.id, done.ingress), (&internal.id, internal.ingress), "{key}={value}");
        assert!(is_free(&rig), "{key}={value}");
        // A lost one is not made again as a public one either.
        rig.remove(&internal.id);
        let known = Wanted { known: Some(internal.id), ..misspelt };
        let error = rig.ensure(&known).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(is_free(&rig), "{key}={value}");
    }
}

#[tokio::test]
async fn a_class_that_does_not_exist_is_named_once() {
    let rig = Rig::new();
    let error = rig.ensure(&annotated(&wanted("web"), "class", "octavia")).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(text.matches("loadbalancer.openstack.org/class").count(), 1, "{text}");
    assert!(text.contains("there is no [LoadBalancerClass \"octavia\"]"), "{text}");
}
