use super::*;

const RULES: OrphanRules =
    OrphanRules { policy: Policy::Delete, confirmation: Duration::from_mins(15) };

fn at(minutes: u64) -> At {
    At::default() + Duration::from_mins(1000 + minutes)
}

fn cluster(uid: &str) -> ClusterId {
    ClusterId { name: "kubernetes".to_owned(), uid: uid.to_owned() }
}

fn owner(uid: &str) -> Owner {
    Owner {
        cluster: cluster("c-1"),
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: format!("web-{uid}"),
    }
}

fn balancer(id: &str, uid: &str) -> LoadBalancer {
    LoadBalancer::new(id, format!("kubernetes_{uid}"), Some(owner(uid)))
}

/// Returns a complete list of these orphans, among many load balancers.
fn list(orphans: &Orphans, at: At, all: &[LoadBalancer]) -> Orphans {
    let mut next = Orphans {
        seen: orphans.seen.clone(),
        all: orphans.all,
        called: orphans.called.clone(),
        brake: orphans.brake.clone(),
    };
    sight(&mut next, at, all, |_| {});
    next
}

fn sight(
    orphans: &mut Orphans,
    at: At,
    all: &[LoadBalancer],
    change: impl FnOnce(&mut OrphanSight<'_>),
) {
    let cluster = cluster("c-1");
    let mut sight =
        OrphanSight { cluster: &cluster, orphans: all, all: 20, services: 5, is_complete: true };
    change(&mut sight);
    orphans.listed(at, sight);
}

/// Returns the verdicts, by ID.
fn verdicts(orphans: &mut Orphans, now: At, rules: OrphanRules) -> BTreeMap<String, OrphanVerdict> {
    orphans.decide(now, rules).into_iter().map(|(orphan, verdict)| (orphan.id, verdict)).collect()
}

fn due(orphans: &mut Orphans, now: At) -> Vec<String> {
    let verdicts = verdicts(orphans, now, RULES).into_iter();
    verdicts.filter(|(_, verdict)| verdict.why_not().is_none()).map(|(id, _)| id).collect()
}

/// Returns orphans that have been seen for long enough.
fn proven(all: &[LoadBalancer]) -> Orphans {
    list(&list(&Orphans::default(), at(0), all), at(15), all)
}

#[test]
fn an_orphan_is_deleted_when_two_lists_a_quarter_of_an_hour_apart_have_shown_it() {
    let all = [balancer("lb-1", "u-1")];
    let mut orphans = list(&Orphans::default(), at(0), &all);
    assert_eq!(due(&mut orphans, at(60)), [""; 0], "one list does not prove it, however old");
    let mut orphans = list(&orphans, at(14), &all);
    assert_eq!(
        verdicts(&mut orphans, at(20), RULES)["lb-1"],
        OrphanVerdict::Unproven(at(15)),
        "nor are two that are too close"
    );
    let mut orphans = list(&orphans, at(15), &all);
    assert_eq!(due(&mut orphans, at(15)), ["lb-1"]);
}

#[test]
fn a_list_that_shows_it_with_a_service_begins_the_proof_anew() {
    let all = [balancer("lb-1", "u-1")];
    let mut orphans = list(&list(&proven(&all), at(16), &[]), at(20), &all);
    assert_eq!(verdicts(&mut orphans, at(21), RULES)["lb-1"], OrphanVerdict::Unproven(at(35)));
}

#[test]
fn another_owner_under_the_same_id_begins_the_proof_anew() {
    let mut orphans = list(&proven(&[balancer("lb-1", "u-1")]), at(20), &[balancer("lb-1", "u-2")]);
    assert_eq!(verdicts(&mut orphans, at(21), RULES)["lb-1"], OrphanVerdict::Unproven(at(35)));
}

#[test]
fn a_list_with_malformed_entries_proves_nothing() {
    let all = [balancer("lb-1", "u-1")];
    let mut orphans = list(&Orphans::default(), at(0), &all);
    sight(&mut orphans, at(15), &all, |sight| sight.is_complete = false);
    assert_eq!(due(&mut orphans, at(15)), [""; 0]);
    let mut orphans = Orphans::default();
    sight(&mut orphans, at(0), &all, |sight| sight.is_complete = false);
    let mut orphans = list(&orphans, at(15), &all);
    assert_eq!(due(&mut orphans, at(15)), [""; 0], "the first one does not count either");
}

#[test]
fn a_store_without_services_proves_nothing_and_holds_everything() {
    let all = [balancer("lb-1", "u-1")];
    let mut orphans = proven(&all);
    sight(&mut orphans, at(16), &all, |sight| sight.services = 0);
    let verdict = &verdicts(&mut orphans, at(16), RULES)["lb-1"];
    assert_eq!(*verdict, OrphanVerdict::Implausible(Implausible::NoServices));
    assert!(verdict.is_held());
    let mut orphans = Orphans::default();
    sight(&mut orphans, at(0), &all, |sight| sight.services = 0);
    let mut orphans = list(&orphans, at(15), &all);
    assert_eq!(verdicts(&mut orphans, at(15), RULES)["lb-1"], OrphanVerdict::Unproven(at(30)));
}

#[test]
fn most_load_balancers_are_not_orphans() {
    let all: Vec<_> = (0..3).map(|n| balancer(&format!("lb-{n}"), &format!("u-{n}"))).collect();
    for (count, orphans_of, is_held) in [(3, 5, true), (3, 6, false), (2, 2, false)] {
        let mut orphans = proven(&all[..count]);
        sight(&mut orphans, at(16), &all[..count], |sight| sight.all = orphans_of);
        let verdict = &verdicts(&mut orphans, at(16), RULES)["lb-0"];
        assert_eq!(
            *verdict == OrphanVerdict::Implausible(Implausible::Most),
            is_held,
            "{count} of {orphans_of}: {verdict:?}"
        );
    }
}

#[test]
fn no_more_are_deleted_in_a_window_than_the_budget_allows_over_changes_of_leader() {
    let all: Vec<_> = (0..9).map(|n| balancer(&format!("lb-{n}"), &format!("u-{n}"))).collect();
    let mut orphans = proven(&all);
    assert_eq!(due(&mut orphans, at(15)), ["lb-0", "lb-1", "lb-2"]);
    assert_eq!(due(&mut orphans, at(16)), ["lb-0", "lb-1", "lb-2"], "each is charged once");
    for id in ["lb-0", "lb-1", "lb-2"] {
        orphans.ended(id);
    }
    let held = &verdicts(&mut orphans, at(16), RULES)["lb-3"];
    assert_eq!((held.is_held(), held.until()), (true, Some(at(15 + 6 * 60))));
    // The next leader collects the proof again, with the rest of the budget.
    let left = orphans.window(at(16) - BUDGET.window);
    let mut next = Orphans::resume(at(17), left);
    sight(&mut next, at(17), &all[3..], |_| {});
    let soon = OrphanRules { confirmation: Duration::ZERO, ..RULES };
    sight(&mut next, at(18), &all[3..], |_| {});
    let held = &verdicts(&mut next, at(18), soon)["lb-3"];
    assert_eq!(*held, OrphanVerdict::Budget(Some(at(15 + 6 * 60))));
    assert_eq!(orphans.window(at(15)), Window::default(), "what is older is not left");
    assert_eq!(due(&mut orphans, at(15 + 6 * 60)), ["lb-3", "lb-4", "lb-5"]);
}

#[test]
fn only_what_is_this_clusters_and_names_its_service_is_deleted() {
    let with = |change: fn(&mut LoadBalancer)| {
        let mut one = balancer("lb-1", "u-1");
        change(&mut one);
        one
    };
    let named = |change: fn(&mut Owner)| {
        let mut one = balancer("lb-1", "u-1");
        change(one.owner.as_mut().unwrap());
        one
    };
    for one in [
        with(|one| one.owner = None),
        with(|one| one.title = Title::Foreign),
        with(|one| one.title = Title::Shared { others: 1 }),
        with(|one| one.title = Title::Adoptable { why: "made before".to_owned() }),
        named(|owner| owner.cluster.uid = "c-2".to_owned()),
        named(|owner| owner.uid = String::new()),
        named(|owner| owner.namespace = String::new()),
        named(|owner| owner.name = String::new()),
    ] {
        assert_eq!(due(&mut proven(std::slice::from_ref(&one)), at(15)), [""; 0], "{one:?}");
    }
}

#[test]
fn the_policy_is_to_report_unless_it_says_otherwise() {
    assert_eq!(Policy::default(), Policy::Report);
    let mut orphans = proven(&[balancer("lb-1", "u-1")]);
    let rules = OrphanRules { policy: Policy::Report, ..RULES };
    assert_eq!(verdicts(&mut orphans, at(15), rules)["lb-1"], OrphanVerdict::Reported);
    assert_eq!(orphans.window(at(0)), Window::default(), "nothing is charged");
    assert_eq!(due(&mut orphans, at(15)), ["lb-1"], "the setting is live");
}

#[test]
fn only_the_api_servers_word_about_this_uid_confirms_a_deletion() {
    let service = |uid: &str| Service { uid: uid.into(), ..Service::default() };
    assert!(is_gone(&owner("u-1"), None));
    let other = Service { is_load_balancer: true, ..service("u-2") };
    assert!(is_gone(&owner("u-1"), Some(&other)), "another Service of this name");
    let bare = service("u-1");
    assert!(is_gone(&owner("u-1"), Some(&bare)), "it has lost type and finalizer");
    let wants = Service { is_load_balancer: true, ..bare.clone() };
    assert!(!is_gone(&owner("u-1"), Some(&wants)));
    assert!(!is_gone(&owner("u-1"), Some(&Service { has_finalizer: true, ..bare })));
}

#[test]
fn what_the_api_server_refutes_is_seen_anew_and_costs_no_budget() {
    let all = [balancer("lb-1", "u-1")];
    let mut orphans = proven(&all);
    assert_eq!(due(&mut orphans, at(15)), ["lb-1"]);
    orphans.refuted("lb-1");
    assert_eq!(orphans.window(at(0)), Window::default());
    let mut orphans = list(&orphans, at(20), &all);
    assert_eq!(verdicts(&mut orphans, at(21), RULES)["lb-1"], OrphanVerdict::Unproven(at(35)));
}

#[test]
fn an_attempt_that_fails_is_repeated_with_back_off() {
    let mut orphans = proven(&[balancer("lb-1", "u-1")]);
    let mut now = at(15);
    for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(due(&mut orphans, now), ["lb-1"], "{now}");
        orphans.record_failure(now, "lb-1", "no".to_owned());
        let verdict = verdicts(&mut orphans, now, RULES).remove("lb-1").unwrap();
        now = now + Duration::from_mins(minutes);
        assert_eq!(verdict, OrphanVerdict::Failed("no".to_owned(), now));
        assert!(verdict.is_held());
    }
    orphans.unconfirmed(now, "lb-1", "no answer".to_owned());
    assert_eq!(orphans.window(now - BUDGET.window), Window::default(), "nothing was deleted");
}

#[test]
fn of_two_load_balancers_of_one_owner_one_is_deleted_after_the_other() {
    let all = [balancer("lb-1", "u-1"), balancer("lb-2", "u-1")];
    let mut orphans = proven(&all);
    let first = verdicts(&mut orphans, at(15), RULES);
    assert_eq!(first["lb-1"], OrphanVerdict::Due { is_duplicate: true });
    assert_eq!(first["lb-2"], OrphanVerdict::After);
    orphans.works("lb-1", "PENDING_DELETE".to_owned(), at(16));
    let works = OrphanVerdict::Works("PENDING_DELETE".to_owned(), at(16));
    assert!(!works.is_held());
    assert_eq!(verdicts(&mut orphans, at(15), RULES)["lb-1"], works);
    orphans.ended("lb-1");
    let then = verdicts(&mut orphans, at(16), RULES);
    assert_eq!(then["lb-2"], OrphanVerdict::Due { is_duplicate: false });
}

#[test]
fn what_is_left_of_a_deletion_is_deleted_although_no_list_shows_it() {
    let all = [balancer("lb-1", "u-1")];
    let mut orphans = proven(&all);
    orphans.works("lb-1", "PENDING_DELETE".to_owned(), at(16));
    let mut orphans = list(&orphans, at(20), &[]);
    assert_eq!(due(&mut orphans, at(20)), ["lb-1"], "an address may be left");
    orphans.ended("lb-1");
    assert_eq!(due(&mut list(&orphans, at(25), &[]), at(25)), [""; 0]);
    let mut orphans = proven(&all);
    orphans.unconfirmed(at(15), "lb-1", "no answer".to_owned());
    assert_eq!(due(&mut list(&orphans, at(20), &[]), at(20)), [""; 0], "nothing was called for");
}

#[test]
fn age_and_cost_are_kept_as_first_seen() {
    let mut one = balancer("lb-1", "u-1");
    one.age = Some(Duration::from_mins(100));
    one.cost = Some("amphora with floating IP".to_owned());
    let mut orphans = list(&Orphans::default(), at(0), std::slice::from_ref(&one));
    one.age = Some(Duration::from_mins(120));
    sight(&mut orphans, at(19), std::slice::from_ref(&one), |_| {});
    let (orphan, _) = orphans.decide(at(20), RULES).remove(0);
    assert_eq!(orphan.made, Some(at(0) - Duration::from_mins(100)), "the page does not change");
    assert_eq!(orphan.cost.as_deref(), Some("amphora with floating IP"));
}

#[test]
fn the_service_waits_while_a_deletion_for_its_uid_is_running() {
    let mut orphans = proven(&[balancer("lb-1", "a")]);
    orphans.call(&[owner("a")]);
    assert!(orphans.is_called("a") && !orphans.is_called("b"));
    orphans.call(&[]);
    assert!(!orphans.is_called("a"));
}
