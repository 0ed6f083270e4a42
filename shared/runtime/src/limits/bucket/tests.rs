use proptest::prelude::*;

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Takes all available tokens, and returns their number.
fn drain(bucket: &mut Bucket, now: Instant) -> usize {
    (0..1000).take_while(|_| bucket.take(now).is_ok()).count()
}

#[test]
fn a_burst_and_then_a_rate() {
    let now = Instant::now();
    let mut bucket = Bucket::new(Rate::new(10.0, 3), now);
    assert_eq!(drain(&mut bucket, now), 3);
    assert_eq!(bucket.take(now).unwrap_err().duration_since(now).as_millis(), 100);
    assert_eq!(drain(&mut bucket, now + ms(99)), 0);
    assert_eq!(drain(&mut bucket, now + ms(201)), 2);
    assert_eq!(drain(&mut bucket, now + ms(60_000)), 3, "no more than the burst is saved up");
    assert_eq!(bucket.earliest(9, now + ms(60_000)).duration_since(now).as_millis(), 61_000);
}

#[test]
fn no_rate_is_no_limit_but_can_be_closed() {
    let now = Instant::now();
    for per_second in [0.0, -5.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut bucket = Bucket::new(Rate::new(per_second, 1), now);
        assert_eq!(drain(&mut bucket, now), 1000, "{per_second}");
        bucket.close(ms(50), now);
        assert_eq!(bucket.take(now), Err(now + ms(50)), "{per_second}");
        assert_eq!(drain(&mut bucket, now + ms(50)), 1000, "{per_second}");
        bucket.configure(Rate::new(1.0, 2), now + ms(50));
        assert_eq!(
            drain(&mut bucket, now + ms(50)),
            2,
            "{per_second}: a limit that is new begins full"
        );
    }
}

#[test]
fn odd_rates_do_no_harm() {
    let now = Instant::now();
    let mut bucket = Bucket::new(Rate::new(1.0, 0), now);
    assert_eq!(drain(&mut bucket, now), 1, "no burst");
    for per_second in [f64::MIN_POSITIVE, 1e-300, 1e-9] {
        let mut bucket = Bucket::new(Rate::new(per_second, 1), now);
        assert_eq!(drain(&mut bucket, now), 1);
        assert!(bucket.take(now).unwrap_err() <= now + HORIZON + ms(1), "{per_second}");
    }
    let mut bucket = Bucket::new(Rate::new(1.0, 1), now);
    bucket.close(Duration::MAX, now);
    assert_eq!(bucket.closed_for(now), Some(MAX_CLOSED));
}

#[test]
fn the_later_end_of_two_closings_counts() {
    let now = Instant::now();
    let mut bucket = Bucket::new(Rate::new(1.0, 1), now);
    assert!(bucket.close(ms(500), now));
    assert!(!bucket.close(ms(100), now), "it was closed already");
    assert_eq!(bucket.closed_for(now), Some(ms(500)));
    assert_eq!(bucket.take(now + ms(499)), Err(now + ms(500)));
    assert_eq!(bucket.take(now + ms(500)), Ok(()));
    assert_eq!(bucket.closed_for(now + ms(500)), None);
}

#[test]
fn refusals_halve_the_rate_down_to_the_floor() {
    let mut now = Instant::now();
    let mut bucket = Bucket::new(Rate::new(100.0, 10), now);
    let mut rates = Vec::new();
    for _ in 0..6 {
        // A burst of refusals belongs to one rate: it halves once.
        (0..5).for_each(|_| bucket.refused(now));
        rates.push(bucket.in_force().unwrap());
        now += ms(1000);
    }
    assert_eq!(rates, [50.0, 25.0, 12.5, 10.0, 10.0, 10.0]);
    assert_eq!(bucket.throttled, 30);
}

fn assert_near(found: f64, expect: f64) {
    assert!((found - expect).abs() < 1e-6, "{found} should be {expect}");
}

#[test]
fn tokens_are_earned_at_the_rate_of_their_time() {
    let now = Instant::now();
    let second = now + ms(1000);
    let empty = || {
        let mut bucket = Bucket::new(Rate::new(100.0, 1000), now);
        assert_eq!(drain(&mut bucket, now), 1000);
        bucket
    };
    let mut halved = empty();
    halved.refused(second);
    assert_near(halved.tokens(second), 100.0);
    assert_near(halved.tokens(now + ms(2000)), 150.0);
    let mut raised = empty();
    raised.refused(now);
    raised.succeeded(second);
    assert_near(raised.tokens(second), 50.0);
    let mut changed = empty();
    changed.configure(Rate::new(1.0, 30), second);
    assert_near(changed.tokens(second), 30.0);
}

#[test]
fn success_restores_the_rate_gradually() {
    let start = Instant::now();
    let mut bucket = Bucket::new(Rate::new(100.0, 10), start);
    bucket.refused(start);
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    bucket.succeeded(at(600));
    let one = bucket.in_force().unwrap();
    assert!((51.0..52.0).contains(&one), "one success after a long silence says little: {one}");
    (0..1000).for_each(|_| bucket.succeeded(at(600)));
    assert!((bucket.in_force().unwrap() - one).abs() < 1e-9, "many at once say no more than one");
    (601..615).for_each(|second| bucket.succeeded(at(second)));
    assert!((74.0..76.0).contains(&bucket.in_force().unwrap()), "half way");
    (615..640).for_each(|second| bucket.succeeded(at(second)));
    assert_eq!(bucket.in_force(), Some(100.0));
}

#[test]
fn a_new_rate_holds_at_once_and_keeps_the_share() {
    let now = Instant::now();
    let mut bucket = Bucket::new(Rate::new(100.0, 50), now);
    bucket.refused(now);
    bucket.configure(Rate::new(40.0, 5), now);
    assert_eq!(bucket.in_force(), Some(20.0));
    assert_eq!(drain(&mut bucket, now), 5, "what was saved up beyond the new burst is lost");
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Pass(u64),
    Take,
    Configure(f64, u32),
    Close(u64),
    Refused,
    Succeeded,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..200_000_u64).prop_map(Op::Pass),
        12 => Just(Op::Take),
        1 => (0.5..80.0, 1..9_u32).prop_map(|(rate, burst)| Op::Configure(rate, burst)),
        1 => (0..300_000_u64).prop_map(Op::Close),
        1 => Just(Op::Refused),
        2 => Just(Op::Succeeded),
    ]
}

/// The time of a grant, and the total that the rates up to then allow.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// The integral of the configured rate over time.
    earned: f64,
    burst: f64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No window has more grants than its largest burst plus its earned tokens. Time is counted
    /// in microseconds.
    #[test]
    fn never_more_than_burst_and_rate(ops in prop::collection::vec(op(), 1..200)) {
        let start = Instant::now();
        let (mut now, mut earned, mut rate, mut burst) = (start, 0.0, 20.0, 4);
        let mut closed_until = start;
        let mut bucket = Bucket::new(Rate::new(rate, burst), start);
        let mut grants: Vec<Grant> = Vec::new();
        for op in ops {
            match op {
                Op::Pass(micros) => {
                    now += Duration::from_micros(micros);
                    earned += rate * Duration::from_micros(micros).as_secs_f64();
                }
                Op::Take => match bucket.take(now) {
                    Ok(()) => {
                        prop_assert!(now >= closed_until, "closed");
                        grants.push(Grant { earned, burst: f64::from(burst) });
                    }
                    Err(at) => {
                        prop_assert!(at > now);
                        prop_assert!(bucket.clone().take(at).is_ok(), "a token is ready when it was promised");
                        prop_assert!(bucket.clone().take(at - Duration::from_micros(1)).is_err(), "and not before");
                    }
                },
                Op::Configure(new_rate, new_burst) => {
                    (rate, burst) = (new_rate, new_burst);
                    bucket.configure(Rate::new(rate, burst), now);
                }
                Op::Close(micros) => {
                    closed_until = closed_until.max(now + Duration::from_micros(micros));
                    bucket.close(Duration::from_micros(micros), now);
                }
                Op::Refused => bucket.refused(now),
                Op::Succeeded => bucket.succeeded(now),
            }
            let in_force = bucket.in_force().unwrap_or(f64::INFINITY);
            prop_assert!(in_force <= rate * (1.0 + 1e-12) && in_force >= rate * 0.099);
        }
        for (at, from) in grants.iter().enumerate() {
            let mut largest: f64 = 0.0;
            for (count, to) in (1_u32..).zip(&grants[at..]) {
                largest = largest.max(to.burst).max(from.burst);
                let allowed = largest + (to.earned - from.earned) + 1e-6;
                prop_assert!(f64::from(count) <= allowed, "{count} grants where {allowed} are allowed");
            }
        }
    }
}
