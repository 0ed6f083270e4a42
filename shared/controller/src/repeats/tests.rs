use super::*;

const ZONE: &str = "zone";

fn at(seconds: u64) -> At {
    At::default() + Duration::from_secs(seconds)
}

fn a() -> Content {
    Content::digest("a")
}

/// Returns the seconds of the writes if another client undoes each write at once.
fn written(seconds: u64, is_refused: bool) -> Vec<u64> {
    let (mut repeats, mut times) = (Repeats::default(), Vec::new());
    for second in 0..seconds {
        if repeats.check(at(second), ZONE, a).is_ok() {
            repeats.add(at(second), ZONE.into(), a(), is_refused);
            times.push(second);
        }
    }
    times
}

#[test]
fn what_is_taken_back_is_repeated_with_growing_pauses() {
    assert_eq!(written(60, false), [0, 1, 2, 12, 32]);
    let hour = written(3600, false);
    assert_eq!(hour[3..9], [12, 32, 72, 152, 312, 612]);
    assert!(hour[8..].windows(2).all(|pair| pair[1] - pair[0] == 300), "{hour:?}");
}

#[test]
fn what_the_answer_does_not_show_is_repeated_every_minute() {
    assert_eq!(written(200, true), [0, 60, 120, 180]);
}

#[test]
fn another_wish_never_waits_and_is_not_counted_with_the_last_one() {
    let mut repeats = Repeats::default();
    for second in 0..20 {
        // A user changes a field back and forth.
        let content = Content::digest(if second % 2 == 0 { "a" } else { "b" });
        assert_eq!(repeats.check(at(second), ZONE, || content), Ok(()), "{second}");
        assert_eq!(repeats.made(at(second), ZONE, content), None, "{second}");
    }
    assert_eq!(repeats.next(at(20)), None);
}

#[test]
fn other_contents_other_kinds_and_what_has_lasted_do_not_count() {
    let mut repeats = Repeats::default();
    for _ in 0..2 {
        assert_eq!(repeats.made(at(0), ZONE, a()), None);
    }
    let wait = Duration::from_secs(10);
    let repeated = Repeated { kind: ZONE.into(), times: 3, is_refused: false, wait, is_news: true };
    assert_eq!(repeats.made(at(0), ZONE, a()), Some(repeated.clone()));
    let wait = Duration::from_secs(9);
    let repeated = Repeated { wait, is_news: false, ..repeated };
    assert_eq!(repeats.check(at(1), ZONE, a), Err(repeated.clone()));
    assert_eq!(repeats.waiting(at(1)).collect::<Vec<_>>(), [repeated]);
    assert_eq!(repeats.next(at(1)), Some(at(10)));
    assert_eq!(repeats.check(at(1), ZONE, || Content::digest("b")), Ok(()));
    assert_eq!(repeats.check(at(1), "region", a), Ok(()));
    assert_eq!(repeats.made(at(600), ZONE, a()), None, "it counts again");
}

#[test]
fn it_is_news_once_and_again_after_an_hour() {
    let mut repeats = Repeats::default();
    let mut news = Vec::new();
    for second in (0..7200).step_by(300) {
        let repeated = repeats.made(at(second), ZONE, a());
        news.extend(repeated.filter(|one| one.is_news).map(|_| second));
    }
    assert_eq!(news, [600, 4200]);
}

#[test]
fn the_text_says_what_was_seen() {
    let mut repeats = Repeats::default();
    let text = repeats.refused(at(0), "podCIDRs", a()).expect("a repeat").to_string();
    assert!(text.starts_with("the write podCIDRs was answered as done, but"), "{text}");
    assert!(text.ends_with("retrying every 1m0s"), "{text}");
    for _ in 0..2 {
        repeats.made(at(0), "set_members", a());
    }
    let text = repeats.made(at(0), "set_members", a()).expect("a repeat").to_string();
    assert!(text.contains("set_members was answered as done 3 times in a row"), "{text}");
}
