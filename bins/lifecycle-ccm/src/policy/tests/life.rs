//! The Lease of a kubelet: proof of life.

use super::*;

/// Returns the verdicts about a node whose instance the cloud denies, with what its Lease showed.
fn judge(steps: &[(f64, Option<&str>)]) -> Vec<(&'static str, &'static str)> {
    let (views, policy, mut decider) = (among_ready(view("a")), Policy::default(), Decider::new());
    let mut verdicts = Vec::new();
    for (now, lease) in steps {
        let now = at(*now);
        let agenda = decider.agenda(now, &views, &policy);
        let heartbeat = lease.map(|text| Heartbeat(text.to_owned()));
        let is_read = agenda.heartbeats.contains("a");
        let heartbeat = heartbeat.filter(|_| is_read);
        let (name, uid) = ("a".into(), "uid-a".into());
        let lookups = vec![LookedUp { name, uid, answered: now, result: gone(), heartbeat }];
        let list = Some(lacks(now, &["a"]));
        let answers = Answers { asked: now, lookups, witnesses: Vec::new(), list };
        verdicts.push(why(&decider.decide(now, &views, answers, &policy)[0].verdict));
    }
    verdicts
}

#[test]
fn a_kubelet_that_renews_its_lease_lives() {
    let unconfirmed = ("suspect", "unconfirmed");
    let silent = [(0.0, Some("1")), (10.0, None), (20.0, Some("1"))];
    assert_eq!(judge(&silent), [unconfirmed, unconfirmed, ("delete", "")]);
    let alive = [(0.0, Some("1")), (20.0, Some("2")), (40.0, Some("2")), (60.0, Some("2"))];
    let then = [unconfirmed, ("keep", "alive"), unconfirmed, ("delete", "")];
    assert_eq!(judge(&alive), then, "the case ends, and the next one begins with another Lease");
    let none = [(0.0, Some("")), (20.0, Some(""))];
    assert_eq!(judge(&none), [unconfirmed, ("delete", "")], "it never had one");
    assert_eq!(judge(&[(0.0, Some("")), (20.0, Some("1"))])[1], ("keep", "alive"));
}

#[test]
fn a_lease_that_cannot_be_read_keeps_the_node() {
    let unread = ("suspect", "no_heartbeat");
    let steps = [(0.0, Some("1")), (20.0, None), (30.0, None), (40.0, Some("1"))];
    assert_eq!(judge(&steps)[1..], [unread, unread, ("delete", "")]);
    // Read for the first time after 20 s: a confirmation period counts from there.
    let steps = [(0.0, None), (20.0, Some("1")), (30.0, Some("1")), (40.0, Some("1"))];
    assert_eq!(judge(&steps)[1..], [unread, unread, ("delete", "")]);
}

#[test]
fn leases_are_read_only_when_they_decide() {
    let (policy, views) = (Policy::default(), among_ready(view("a")));
    let mut decider = Decider::new();
    let reads = |decider: &mut Decider, now: f64, views: &[NodeView]| {
        decider.agenda(at(now), views, &policy).heartbeats.len()
    };
    assert_eq!(reads(&mut decider, 0.0, &views), 1);
    decide(&mut decider, at(0.0), &views, ("a", gone()), None);
    assert_eq!(reads(&mut decider, 10.0, &views), 0, "read, and not yet to be confirmed");
    assert_eq!(reads(&mut decider, 20.0, &views), 1);
    let protected = among_ready(NodeView { protected: true, ..view("a") });
    assert_eq!(reads(&mut Decider::new(), 0.0, &protected), 0);
}
