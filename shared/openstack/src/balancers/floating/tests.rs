use ccm_cloud::ClusterId;

use super::*;

fn owner() -> Owner {
    let cluster = ClusterId { name: "c".to_owned(), uid: "c-1".to_owned() };
    let (uid, namespace, name) = ("u".to_owned(), "ns".to_owned(), "web".to_owned());
    Owner { cluster, uid, namespace, name }
}

/// Returns a floating IP by the last number of its address: a user's, or one that was made for this
/// owner.
fn ip(last: u8, network: &str, port: Option<&str>, made: bool) -> FloatingIp {
    FloatingIp {
        id: format!("{last}"),
        address: [203, 0, 113, last].into(),
        fixed_address: None,
        port_id: port.map(str::to_owned),
        floating_network_id: network.to_owned(),
        description: if made { names::floating(&owner()) } else { "mine".to_owned() },
        tags: if made { names::owner_tags(&owner()).to_vec() } else { Vec::new() },
        revision: Some(1),
    }
}

fn lines(keep: bool, attached: &[FloatingIp], elsewhere: &Elsewhere) -> Vec<String> {
    let network =
        Given { value: "near".to_owned(), source: crate::balancers::annotations::Source::Found };
    let address = Some([203, 0, 113, 9].into());
    let wish = Wish::External { network, subnet: None, address, keep };
    let steps = plan(&wish, &owner(), attached, elsewhere).unwrap();
    let shown = |step: Step| {
        let line = step.line.replace("floating IP 203.0.113.", "");
        match step.act {
            steps::Act::Floating(Act::Wished { instead_of: Some(other), .. }) => {
                format!("{line} instead of {}", other.id)
            }
            _ => line,
        }
    };
    steps.into_iter().map(shown).collect()
}

/// No address that clients use is given up before the wished one exists.
#[test]
fn an_exchange_attaches_first_where_that_is_possible() {
    let port = Some("port");
    let wished = |network| Some(ip(9, network, None, false));
    let elsewhere = |network, tagged| Elsewhere { wished: wished(network), tagged };
    let (own, far, user) =
        (ip(1, "near", port, true), ip(2, "far", port, true), ip(3, "near", port, false));
    let (free, own_nine) = (ip(4, "near", None, true), ip(9, "near", None, true));
    for (attached, elsewhere, expect, kept) in [
        (
            vec![own.clone()],
            elsewhere("near", vec![]),
            &["attach 9 instead of 1", "delete 1"][..],
            1,
        ),
        (vec![own.clone()], elsewhere("far", vec![]), &["attach 9", "delete 1"], 2),
        (vec![user.clone()], elsewhere("near", vec![]), &["attach 9 instead of 3"], 1),
        (vec![user.clone()], elsewhere("far", vec![]), &["attach 9", "detach 3"], 2),
        (
            vec![own.clone(), far.clone()],
            elsewhere("near", vec![]),
            &["attach 9 instead of 1", "delete 1", "delete 2"],
            2,
        ),
        (vec![], elsewhere("near", vec![]), &["attach 9"], 1),
        (vec![], elsewhere("near", vec![free.clone()]), &["attach 9 instead of 4", "delete 4"], 1),
        // This one was attached to an earlier load balancer.
        (
            vec![],
            Elsewhere { wished: Some(own_nine.clone()), tagged: vec![own_nine] },
            &["attach 9"],
            1,
        ),
        // These are left from an interrupted exchange.
        (vec![ip(9, "near", port, false), far], elsewhere("near", vec![]), &["delete 2"], 1),
        (vec![ip(9, "near", port, false)], elsewhere("near", vec![free]), &["delete 4"], 0),
        (vec![ip(9, "near", port, false), user], elsewhere("near", vec![]), &[], 0),
    ] {
        assert_eq!(lines(false, &attached, &elsewhere), expect, "{attached:?}");
        // With keep-floatingip nothing is deleted, and nothing is detached twice.
        let keeps = lines(true, &attached, &elsewhere);
        assert_eq!(keeps.len(), kept, "{keeps:?}");
        assert!(keeps.iter().all(|line| !line.starts_with("delete")), "{keeps:?}");
    }
}

#[test]
fn its_own_that_may_be_left_is_looked_for() {
    let network =
        Given { value: "near".to_owned(), source: crate::balancers::annotations::Source::Found };
    let wish =
        |address| Wish::External { network: network.clone(), subnet: None, address, keep: false };
    let (nine, port) = (Some([203, 0, 113, 9].into()), Some("port"));
    let (own, wished) = (ip(1, "near", port, true), ip(9, "near", port, false));
    for (address, attached, is_left, expect) in [
        (None, vec![], false, (None, false)),
        (None, vec![], true, (None, true)),
        (None, vec![own.clone()], true, (None, false)),
        (nine, vec![], false, (nine, false)),
        (nine, vec![own.clone()], false, (nine, false)),
        (nine, vec![own], true, (nine, true)),
        (nine, vec![wished.clone()], true, (None, true)),
        (nine, vec![wished], false, (None, false)),
    ] {
        let Search { address, tags } = search(&wish(address), &attached, is_left);
        assert_eq!((address, tags), expect, "{attached:?}");
    }
}
