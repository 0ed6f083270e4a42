use ccm_objects::{ServiceDetails, ServiceIngress};

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn uid(number: usize) -> Box<str> {
    format!("uid-{number:02}").into()
}

fn at(minutes: u32) -> At {
    At::default() + MINUTE * minutes
}

fn now(minutes: u32) -> Now {
    Now { at: at(minutes), approved: false, can_ask: true, is_same_cloud: true }
}

fn gone() -> Loss {
    Loss { why: "load balancer lb-1: 404".to_owned(), is_gone: true }
}

/// Returns a list that lacks the first ones.
fn lacks(lost: usize, all: usize) -> LossSight {
    LossSight {
        recorded: all,
        all: (0..all).map(uid).collect(),
        missing: (0..lost).map(uid).collect(),
        failed: BTreeSet::new(),
        ready: (lost..all).map(uid).collect(),
    }
}

fn with(lost: usize, all: usize) -> Losses {
    let mut losses = Losses::default();
    losses.listed(at(0), lacks(lost, all));
    losses.see_instance(at(0), true);
    losses
}

/// Returns the verdicts about the first ones, after an answer of the cloud about each of them.
fn verdicts(losses: &mut Losses, count: usize, minutes: u32, loss: &Loss) -> Vec<LossVerdict> {
    (0..count).for_each(|number| losses.record_answer(at(minutes), &uid(number), loss.clone()));
    (0..count).map(|number| losses.decide(&uid(number), now(minutes))).collect()
}

fn replaced(verdicts: &[LossVerdict]) -> usize {
    verdicts.iter().filter(|verdict| **verdict == LossVerdict::Replaced).count()
}

#[test]
fn a_single_one_is_asked_about_before_it_is_replaced() {
    let mut losses = with(1, 20);
    assert_eq!(losses.decide(&uid(0), now(0)), LossVerdict::Asks);
    assert_eq!(losses.decide(&uid(1), now(0)), LossVerdict::Kept);
    losses.record_answer(at(0), &uid(0), gone());
    assert_eq!(losses.decide(&uid(0), now(0)), LossVerdict::Replaced);
    // This provider cannot be asked.
    let unasked = Now { can_ask: false, ..now(0) };
    assert_eq!(with(1, 20).decide(&uid(0), unasked), LossVerdict::Replaced);
}

#[test]
fn of_many_none_is_replaced_without_a_proof() {
    for (lost, all, is_many) in [(3, 20, false), (4, 20, true), (5, 50, false), (6, 50, true)] {
        let mut losses = with(lost, all);
        let verdicts = verdicts(&mut losses, lost, 0, &gone());
        assert_eq!(replaced(&verdicts), if is_many { 0 } else { lost }, "{lost} of {all}");
    }
}

#[test]
fn the_budget_counts_what_six_hours_have_replaced() {
    let mut losses = with(2, 20);
    assert_eq!(replaced(&verdicts(&mut losses, 2, 1, &gone())), 2);
    losses.listed(at(1), lacks(0, 20));
    let mut two = lacks(0, 20);
    two.missing = [uid(7), uid(8)].into();
    two.ready.retain(|uid| !two.missing.contains(uid));
    losses.listed(at(2), two);
    for number in [7, 8] {
        losses.record_answer(at(2), &uid(number), gone());
    }
    assert_eq!(losses.decide(&uid(7), now(2)), LossVerdict::Replaced);
    let held = losses.decide(&uid(8), now(2));
    assert!(matches!(held, LossVerdict::Held(UNPROVED, _)), "{held:?}");
    // The next leader continues with it.
    let mut next = Losses::resume(at(3), losses.window(at(0)));
    next.listed(at(3), LossSight { missing: [uid(8)].into(), ..lacks(0, 20) });
    next.record_answer(at(3), &uid(8), gone());
    assert!(matches!(next.decide(&uid(8), now(3)), LossVerdict::Held(..)));
    assert_eq!(next.decide(&uid(8), now(6 * 60 + 2)), LossVerdict::Replaced);
}

#[test]
fn proved_losses_are_replaced_a_few_at_a_time() {
    let mut losses = with(20, 20);
    assert_eq!(replaced(&verdicts(&mut losses, 20, 0, &gone())), 0);
    assert!(matches!(losses.decide(&uid(0), now(9)), LossVerdict::Held(UNPROVED, _)));
    assert_eq!(losses.decide(&uid(0), now(10)), LossVerdict::Asks);
    let first = verdicts(&mut losses, 20, 10, &gone());
    assert_eq!(replaced(&first), 3);
    assert!(matches!(first[3], LossVerdict::Held(OTHERS, _)), "{first:?}");
    let again: Vec<_> = (0..20).map(|number| losses.decide(&uid(number), now(30))).collect();
    assert_eq!(replaced(&again), 3, "none of them is shown yet");
    losses.end(at(31), &uid(0));
    let next: Vec<_> = (0..20).map(|number| losses.decide(&uid(number), now(31))).collect();
    assert_eq!(replaced(&next), 3, "{next:?}");
    // A list that shows one is as good as an answer.
    losses.listed(at(32), LossSight { ready: [uid(1)].into(), ..lacks(0, 20) });
    assert_eq!(losses.decide(&uid(4), now(32)), LossVerdict::Replaced);
}

#[test]
fn another_cloud_proves_nothing() {
    let shows_others = [(true, false), (false, true), (false, false)];
    for (is_same_cloud, shows_others) in shows_others {
        let mut losses = with(20, 20);
        losses.see_instance(at(0), shows_others);
        for minutes in [0, 10] {
            (0..20).for_each(|number| losses.record_answer(at(minutes), &uid(number), gone()));
        }
        let asked = Now { is_same_cloud, ..now(10) };
        for number in 0..20 {
            let verdict = losses.decide(&uid(number), asked);
            assert!(matches!(verdict, LossVerdict::Held(OTHER_CLOUD, _)), "{verdict:?}");
        }
        let later = Now { is_same_cloud, ..now(70) };
        assert_eq!(losses.decide(&uid(0), later), LossVerdict::Asks, "it is asked about seldom");
        assert_eq!(losses.decide(&uid(0), Now { approved: true, ..asked }), LossVerdict::Replaced);
    }
}

#[test]
fn answers_before_the_cloud_shows_others_prove_nothing() {
    let mut losses = with(20, 20);
    losses.see_instance(at(1), false);
    (0..20).for_each(|number| losses.record_answer(at(1), &uid(number), gone()));
    (0..20).for_each(|number| losses.record_answer(at(11), &uid(number), gone()));
    losses.see_instance(at(12), true);
    let held = losses.decide(&uid(0), now(13));
    assert!(matches!(held, LossVerdict::Held(UNPROVED, _)), "{held:?}");
    losses.see_instance(at(17), true);
    assert_eq!(losses.decide(&uid(0), now(22)), LossVerdict::Asks);
    losses.record_answer(at(22), &uid(0), gone());
    assert_eq!(losses.decide(&uid(0), now(22)), LossVerdict::Replaced);
    // The cloud has not shown any in the meantime.
    losses.see_instance(at(23), false);
    losses.see_instance(at(24), true);
    losses.record_answer(at(25), &uid(1), gone());
    let held = losses.decide(&uid(1), now(25));
    assert!(matches!(held, LossVerdict::Held(UNPROVED, _)), "{held:?}");
}

#[test]
fn one_that_was_made_between_two_lists_proves_nothing() {
    let mut losses = with(0, 20);
    losses.record_answer(at(1), &uid(19), gone());
    assert_eq!(losses.decide(&uid(19), now(1)), LossVerdict::Replaced);
    losses.end(at(1), &uid(19));
    losses.listed(at(2), LossSight { ready: [uid(19)].into(), ..lacks(19, 20) });
    assert!(!losses.show_others());
    // The first one of the others is replaced as well, and another one is lost later.
    (0..19).for_each(|number| losses.end(at(3), &uid(number)));
    losses.listed(at(4), LossSight { ready: [uid(18), uid(19)].into(), ..lacks(18, 20) });
    assert!(!losses.show_others());
    // Nothing is lost for as long as the budget counts.
    losses.listed(at(5), lacks(0, 20));
    losses.listed(at(5 + 6 * 60), lacks(0, 20));
    losses.listed(at(6 + 6 * 60), lacks(10, 20));
    assert!(losses.show_others());
}

#[test]
fn what_has_failed_is_never_proved_to_be_gone() {
    let failed = Loss { why: "load balancer lb-1 is in ERROR".to_owned(), is_gone: false };
    let mut losses = with(0, 20);
    let first = verdicts(&mut losses, 3, 0, &failed);
    assert_eq!(replaced(&first), 3, "few are replaced");
    let mut losses = with(20, 20);
    for minutes in [0, 10, 7 * 60] {
        let held = verdicts(&mut losses, 20, minutes, &failed);
        let is_held = |one: &LossVerdict| matches!(one, LossVerdict::Held(FAILED, _));
        assert!(held.iter().all(is_held), "{held:?}");
    }
    assert!(losses.in_words(&uid(4)).starts_with("load balancer lb-1 is in ERROR; 20 of 20"));
}

#[test]
fn of_those_that_have_failed_a_few_are_called_at_a_time() {
    let mut losses = Losses::default();
    let failed = (0..20).map(uid).collect();
    let sight = LossSight { missing: BTreeSet::new(), failed, ..lacks(20, 20) };
    losses.listed(at(0), sight.clone());
    let asked = |losses: &mut Losses| {
        let all = (0..20).map(|number| losses.decide(&uid(number), now(1)));
        all.filter(|verdict| *verdict == LossVerdict::Asks).count()
    };
    assert_eq!(asked(&mut losses), 3);
    assert_eq!(asked(&mut losses), 3, "the same ones");
    // The cloud has repaired one load balancer.
    losses.end(at(1), &uid(0));
    assert_eq!(asked(&mut losses), 3, "the next one follows");
    // It cannot repair the others.
    for number in 1..4 {
        let loss = Loss { why: "ERROR".to_owned(), is_gone: false };
        losses.record_answer(at(1), &uid(number), loss);
    }
    assert_eq!(asked(&mut losses), 0);
}

/// The finalizer says that it was made, and the address says that clients use it. A copied
/// annotation alone says neither.
#[test]
fn a_service_with_finalizer_and_address_has_a_load_balancer_to_lose() {
    for (has_finalizer, has_address) in [(true, true), (false, true), (true, false)] {
        let ingress = vec![ServiceIngress::default(); usize::from(has_address)];
        let annotations = [(ID.into(), "lb-1".into())].into();
        let details = ServiceDetails { ingress, annotations, ..ServiceDetails::default() };
        let details = Some(Box::new(details));
        let service = Service { has_finalizer, details, ..Service::default() };
        let is_one = has_finalizer && has_address;
        assert_eq!(recorded(&service), is_one.then_some("lb-1"), "{has_finalizer} {has_address}");
    }
}

#[test]
fn a_service_that_is_gone_has_lost_nothing() {
    let mut losses = with(4, 20);
    losses.listed(at(1), LossSight::default());
    assert!(!losses.are_any());
}
