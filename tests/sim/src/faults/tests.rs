use super::{plan::Strike, *};

fn effects(plan: &FaultPlan, operation: Operation, calls: usize) -> Vec<bool> {
    (0..calls).map(|_| plan.strike(operation).effect.is_some()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_fault_hits_the_calls_it_was_made_for() {
    let plan = FaultPlan::default();
    plan.add(Fault::new(FaultEffect::Unavailable).on(Operation::Lookup).after(1).times(2));
    assert_eq!(effects(&plan, Operation::List, 3), [false; 3], "another operation");
    assert_eq!(effects(&plan, Operation::Lookup, 5), [false, true, true, false, false]);
    assert!(plan.is_empty(), "a fault that is used up is gone");
}

#[tokio::test(start_paused = true)]
async fn a_fault_ends_with_its_time() {
    let plan = FaultPlan::default();
    plan.add(Fault::new(FaultEffect::Unauthorized).lasting(Duration::from_secs(5)));
    tokio::time::advance(Duration::from_millis(4999)).await;
    assert_eq!(effects(&plan, Operation::Health, 1), [true]);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(effects(&plan, Operation::Health, 1), [false]);
}

#[tokio::test(start_paused = true)]
async fn faults_can_be_removed() {
    let plan = FaultPlan::default();
    let (one, two) =
        (plan.add(Fault::new(FaultEffect::Hang)), plan.add(Fault::new(FaultEffect::Unavailable)));
    assert_eq!(
        plan.strike(Operation::List).effect,
        Some(FaultEffect::Hang),
        "the first one decides"
    );
    assert!(plan.remove(one) && !plan.remove(one));
    assert_eq!(plan.strike(Operation::List).effect, Some(FaultEffect::Unavailable));
    assert!(plan.remove(two));
    plan.add(Fault::new(FaultEffect::Hang));
    plan.clear();
    assert_eq!(plan.strike(Operation::List), Strike::default());
}

#[tokio::test(start_paused = true)]
async fn delays_add_up_and_leave_room_for_an_effect() {
    let plan = FaultPlan::default();
    let ms = Duration::from_millis;
    plan.add(Fault::new(FaultEffect::Latency(ms(10))));
    plan.add(Fault::new(FaultEffect::Unavailable));
    plan.add(Fault::new(FaultEffect::LatencyBetween(ms(5), ms(7))));
    for _ in 0..50 {
        let strike = plan.strike(Operation::List);
        assert!((ms(15)..=ms(17)).contains(&strike.delay), "{strike:?}");
        assert_eq!(strike.effect, Some(FaultEffect::Unavailable));
    }
}

#[tokio::test(start_paused = true)]
async fn chances_repeat_for_the_same_seed() {
    let run = |seed, probability| {
        let plan = FaultPlan::seeded(seed);
        plan.add(Fault::new(FaultEffect::Unavailable).with_probability(probability));
        effects(&plan, Operation::List, 2000)
    };
    assert_eq!(run(1, 0.3), run(1, 0.3));
    assert_ne!(run(1, 0.3), run(2, 0.3));
    let hits = run(3, 0.3).iter().filter(|hit| **hit).count();
    assert!((500..700).contains(&hits), "{hits} of 2000 at 0.3");
    for (probability, expect) in [(0.0, 0), (1.0, 2000), (7.0, 2000), (-1.0, 0)] {
        assert_eq!(run(4, probability).iter().filter(|hit| **hit).count(), expect);
    }
}

#[tokio::test(start_paused = true)]
async fn effects_on_answers_do_not_affect_other_operations() {
    use Operation::{
        DeleteLoadBalancers as Delete, EnsureLoadBalancers as Ensure, Health, List,
        ListLoadBalancers as ListAll, Lookup, PreviewLoadBalancers as Preview, SetMembers as Set,
    };
    let all = [Lookup, List, Health, ListAll, Ensure, Preview, Set, Delete];
    let error = || CloudError::new(ErrorKind::Conflict, "x");
    for (effect, concerned) in [
        (FaultEffect::EmptyList, vec![List, ListAll]),
        (FaultEffect::TruncatedList(1), vec![List, ListAll]),
        (FaultEffect::AnswerCount(1), vec![Lookup]),
        (FaultEffect::FailNodes(Vec::new(), error()), vec![Lookup]),
        (FaultEffect::MalformedInstances(Vec::new()), vec![Lookup, List]),
        (FaultEffect::WrongProject, vec![Lookup, List, ListAll, Delete]),
        (FaultEffect::Hang, all.to_vec()),
        (FaultEffect::Error(error()), all.to_vec()),
    ] {
        let plan = FaultPlan::default();
        plan.add(Fault::new(effect.clone()));
        for operation in all {
            let hit = plan.strike(operation).effect.is_some();
            assert_eq!(hit, concerned.contains(&operation), "{effect:?} on {operation:?}");
        }
    }
    for (trouble, concerned) in [
        (Trouble::Malformed, vec![ListAll]),
        (Trouble::Hang, vec![Ensure, Preview, Set, Delete]),
        (Trouble::Fail(error()), vec![Ensure, Preview, Set, Delete]),
        (Trouble::LoseAnswer, vec![Ensure, Set, Delete]),
        (Trouble::Stick, vec![Ensure, Set, Delete]),
        (Trouble::Late(Duration::ZERO), vec![Ensure, Set, Delete]),
    ] {
        let plan = FaultPlan::default();
        plan.add(Fault::new(FaultEffect::LoadBalancers(Vec::new(), trouble.clone())));
        for operation in all {
            let hit = plan.trouble(operation, &["x".to_owned()]).is_some();
            assert_eq!(hit, concerned.contains(&operation), "{trouble:?} on {operation:?}");
            assert_eq!(plan.strike(operation), Strike::default(), "the call itself is well");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_is_counted_by_the_load_balancers_that_it_names() {
    let plan = FaultPlan::default();
    let names = |name: &str| vec![name.to_owned()];
    let only =
        |name, trouble| Fault::new(FaultEffect::LoadBalancers(names(name), trouble)).times(1);
    plan.add(only("a", Trouble::Hang));
    plan.add(only("b", Trouble::LoseAnswer));
    let operation = Operation::EnsureLoadBalancers;
    for (name, expect) in [
        ("c", None),
        ("b", Some(Trouble::LoseAnswer)),
        ("a", Some(Trouble::Hang)),
        ("a", None),
        ("b", None),
    ] {
        assert_eq!(plan.trouble(operation, &names(name)), expect, "{name}");
    }
    assert!(plan.is_empty());
}
