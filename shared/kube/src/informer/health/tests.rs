use super::*;

/// A watch that was listed at version 100 when the test began, and accepted.
struct Case {
    begun: Instant,
    health: WatchHealth,
}

impl Case {
    fn begin() -> Self {
        let begun = Instant::now();
        let mut health = WatchHealth::new(begun);
        health.listed(begun, "100", false);
        health.accepted(begun);
        Self { begun, health }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.begun + Duration::from_secs(seconds)
    }

    fn shows(&mut self, seconds: u64, version: &str) -> &mut Self {
        self.health.showed_event(self.at(seconds), version);
        self
    }

    fn compares(&mut self, seconds: u64, version: &str) -> &mut Self {
        let comparison = self.health.compares(self.at(seconds));
        self.health.compared(comparison, Ok(version));
        self
    }

    fn cannot_compare(&mut self, seconds: u64, error: ApiError) -> &mut Self {
        let comparison = self.health.compares(self.at(seconds));
        self.health.compared(comparison, Err(error));
        self
    }

    /// Lists the objects of these versions. Returns the version to watch from.
    fn lists(&mut self, seconds: u64, version: &str, objects: &[u64]) -> String {
        let after = self.health.doubted_after();
        let has_news = objects.iter().any(|version| after.is_some_and(|after| *version > after));
        self.health.listed(self.at(seconds), version, has_news)
    }

    /// Returns since when the watch does not work, in seconds, and why.
    fn silence(&self, seconds: u64) -> Option<(u64, String)> {
        let silence = self.health.silence(self.at(seconds))?;
        Some(((silence.since - self.begun).as_secs(), silence.why))
    }
}

fn silent(since: u64, why: &str) -> (u64, String) {
    (since, why.to_owned())
}

fn forbidden() -> ApiError {
    ApiError::Forbidden("no right to watch".to_owned())
}

const NOTHING_YET: &str = "it has shown nothing since the start";
const NOTHING: &str = "no event and no bookmark";
const MISSED: &str = "it does not show changes that a list shows";

#[tokio::test]
async fn a_watch_has_to_show_that_it_works() {
    let mut case = Case::begin();
    assert_eq!(
        case.silence(1),
        Some(silent(0, NOTHING_YET)),
        "a list and an accepted watch do not prove it"
    );
    case.shows(1, "101");
    assert_eq!(case.silence(50), None);
    assert_eq!(case.silence(51), Some(silent(1, NOTHING)));
    case.shows(60, "102");
    assert_eq!(case.silence(60), None);
}

#[tokio::test]
async fn at_the_version_of_the_server_nothing_was_missed() {
    let mut case = Case::begin();
    case.compares(0, "100");
    assert_eq!(case.silence(1), Some(silent(0, NOTHING_YET)), "nothing can have been written yet");
    case.health.ended(case.at(1));
    case.compares(2, "100");
    assert_eq!(case.silence(2), Some(silent(0, NOTHING_YET)), "a watch that was cut");
    case.health.accepted(case.at(3));
    case.health.ended(case.at(6));
    case.compares(6, "100");
    assert_eq!(case.silence(7), None, "a quiet cluster");
    case.compares(30, "101");
    assert_eq!(case.silence(57), Some(silent(6, NOTHING)), "something was written since");
    let mut refused = Case::begin();
    refused.health.refused(forbidden());
    refused.compares(0, "100");
    let why = "forbidden: no right to watch";
    assert_eq!(refused.silence(1), Some(silent(0, why)), "a watch that is refused does not work");
}

#[tokio::test]
async fn a_silent_watch_is_compared_and_then_listed() {
    let mut case = Case::begin();
    case.shows(1, "110");
    let next = |case: &Case, at| {
        let next = case.health.next_comparison(case.health.compares(case.at(at)));
        (next - case.begun).as_secs()
    };
    assert_eq!(next(&case, 2), 31);
    case.compares(31, "150");
    assert_eq!(next(&case, 31), 36);
    assert!(!case.compares(36, "150").health.must_list());
    assert!(case.compares(41, "150").health.must_list());
    case.lists(41, "150", &[90, 110]);
    assert_eq!(next(&case, 41), 71);
}

#[tokio::test]
async fn a_list_shows_whether_a_silent_watch_missed_anything() {
    let doubted = || {
        let mut case = Case::begin();
        case.shows(1, "110").compares(31, "150").compares(36, "160").compares(41, "170");
        assert!(case.health.must_list());
        case
    };
    let mut quiet = doubted();
    assert_eq!(quiet.lists(41, "175", &[90, 110]), "175");
    assert_eq!(quiet.silence(60), None, "other kinds were written");

    let mut racing = doubted();
    assert_eq!(racing.lists(41, "175", &[90, 172]), "110", "to be shown again");
    racing.shows(42, "172");
    assert_eq!(racing.silence(60), None, "the event was on its way");

    let mut deaf = doubted();
    assert_eq!(deaf.lists(41, "175", &[90, 111]), "110");
    assert_eq!(deaf.silence(50), None);
    assert_eq!(deaf.silence(51), Some(silent(1, MISSED)));
    deaf.compares(71, "175").compares(76, "180").compares(81, "180");
    assert_eq!(deaf.lists(81, "180", &[90, 111]), "110", "silence proves nothing any more");
    assert_eq!(deaf.silence(82), Some(silent(1, MISSED)));
    deaf.health.failed(ApiError::Expired(String::new()));
    assert_eq!(deaf.lists(83, "190", &[90, 111]), "190", "its version has expired");
    deaf.compares(84, "190");
    assert_eq!(deaf.silence(84), Some(silent(1, MISSED)));
    deaf.shows(90, "195");
    assert_eq!(deaf.silence(90), None);
}

/// A server that sent a bookmark in each watch owes one.
#[tokio::test]
async fn silence_is_a_fault_where_bookmarks_were_regular() {
    for (marks, is_fault) in [
        ([(10, "110"), (600, "120")], false),
        ([(10, "110"), (35, "110")], false),
        ([(10, "110"), (35, "120")], true),
    ] {
        let mut case = Case::begin();
        for (at, version) in marks {
            case.health.showed_bookmark(case.at(at), version);
        }
        let last = marks[1].0;
        case.compares(last + 31, "150").compares(last + 36, "160").compares(last + 41, "170");
        assert!(case.health.must_list());
        case.lists(last + 41, "175", &[90]);
        assert_eq!(case.silence(last + 60).is_some(), is_fault, "{marks:?}");
    }
    // The bookmark after an event proves nothing about the next one.
    let mut case = Case::begin();
    for at in [10, 20, 30] {
        case.shows(at, &format!("1{at}"));
        case.health.showed_bookmark(case.at(at + 1), &format!("1{at}"));
    }
    case.compares(71, "150");
    case.lists(71, "175", &[90]);
    assert_eq!(case.silence(90), None);
}

#[tokio::test]
async fn a_refused_watch_does_not_work_though_lists_do() {
    let mut case = Case::begin();
    case.shows(1, "100");
    case.health.refused(forbidden());
    case.compares(31, "140").compares(36, "150").compares(41, "150");
    assert!(case.health.must_list());
    case.lists(41, "150", &[]);
    case.health.refused(forbidden());
    assert_eq!(case.silence(25), None, "a watch may fail for a moment");
    assert_eq!(case.silence(26), Some(silent(1, "forbidden: no right to watch")));
    case.health.accepted(case.at(59));
    assert_eq!(case.silence(60), Some(silent(1, NOTHING)));
    case.compares(61, "150");
    assert_eq!(case.silence(61), None);
}

/// The watch would otherwise be shown as failing, then as working, then as failing.
#[tokio::test]
async fn a_list_does_not_excuse_a_refused_watch() {
    let mut case = Case::begin();
    case.shows(1, "100");
    case.health.refused(forbidden());
    assert_eq!(case.silence(27), Some(silent(1, "forbidden: no right to watch")));
    case.lists(30, "150", &[]);
    assert_eq!(case.silence(31), Some(silent(1, "forbidden: no right to watch")));
    case.health.accepted(case.at(32));
    case.shows(33, "151");
    assert_eq!(case.silence(34), None);
}

#[tokio::test]
async fn versions_that_go_back_need_a_list() {
    let mut case = Case::begin();
    assert!(!case.shows(1, "150").compares(30, "150").health.must_list());
    assert!(case.compares(31, "149").health.must_list());
    case.lists(32, "149", &[149]);
    assert!(!case.health.must_list());
    assert_eq!(case.silence(33), None, "the API server was restored, the watch is not deaf");
}

#[tokio::test]
async fn an_event_that_overtakes_a_comparison_is_no_step_back() {
    let mut case = Case::begin();
    let comparison = case.health.compares(case.at(10));
    case.shows(11, "120");
    case.health.compared(comparison, Ok("110"));
    assert!(!case.health.must_list());
}

#[tokio::test]
async fn after_an_unreachable_server_versions_are_not_trusted() {
    let refused = || ApiError::Unavailable("connection refused".to_owned());
    let mut case = Case::begin();
    case.shows(1, "150").cannot_compare(10, refused());
    assert!(!case.health.must_list(), "a list would fail, too");
    assert!(case.compares(15, "180").health.must_list());
    case.lists(15, "181", &[]);
    assert!(!case.compares(20, "190").health.must_list(), "once");
    case.cannot_compare(25, ApiError::Throttled { retry_after: None });
    assert!(!case.compares(30, "195").health.must_list(), "an answer is contact");
}

#[tokio::test]
async fn versions_that_are_no_numbers_are_not_compared() {
    let mut case = Case::begin();
    case.shows(1, "abc").compares(2, "5").compares(3, "").compares(4, "4");
    assert!(!case.health.must_list());
    assert_eq!(case.health.doubted_after(), None);
    assert_eq!(case.silence(51), Some(silent(1, NOTHING)));
}

/// A slow list delays the doubt about the watch, but does not prove that it works.
#[tokio::test]
async fn pages_of_a_list_are_no_proof() {
    let mut case = Case::begin();
    case.shows(1, "110");
    for second in [20, 40, 60] {
        case.health.showed_page(case.at(second));
        assert!(!case.compares(second, "150").health.must_list(), "{second}");
    }
    assert_eq!(case.silence(60), Some(silent(1, NOTHING)));
    assert_eq!(case.health.listed_at(), case.begun);
    assert!(!case.compares(99, "150").health.must_list());
    assert!(case.compares(100, "150").health.must_list());
}
