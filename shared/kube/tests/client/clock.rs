//! The `Date` of each answer shows how the API server's clock differs from this machine's.

use ccm_base::clock;
use ccm_testing::Log;
use http::header::DATE;
use jiff::SignedDuration;
use tracing::Level;

use crate::support::{answer, config, exposed, node_body, nodes, served_by};

/// Returns an RFC 9110 date of a server whose clock is ahead by this many seconds.
fn date(ahead: i64) -> String {
    let now = clock::wall() + SignedDuration::from_secs(ahead);
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap()
}

/// Returns the gauge after answers of a server whose clock is ahead by this much each time.
async fn shown(ahead: &[i64]) -> (f64, bool) {
    let config = config();
    let mut last = (0.0, true);
    for ahead in ahead.iter().copied() {
        let clients = served_by(&config, move |_request| async move {
            let mut answer = answer(200, node_body("a"));
            answer.headers_mut().insert(DATE, date(ahead).parse().unwrap());
            Ok(answer)
        });
        nodes(&clients.main).get("a").await.unwrap();
        let text = exposed(&config);
        let name = "ccm_apiserver_clock_difference_seconds ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        last = (line.unwrap().parse().unwrap(), clients.clock.verdict().is_ok());
    }
    last
}

#[tokio::test]
async fn a_clock_that_differs_is_seen_in_the_date_of_an_answer() {
    let log = Log::new();
    let _listening = log.listen(Level::WARN);
    assert_eq!(shown(&[0]).await, (0.0, true));
    assert!(shown(&[9]).await.1, "{}", log.text());
    assert!(!log.text().contains("clock"), "{}", log.text());
    let (behind, is_right) = shown(&[95]).await;
    assert!((-95.5..-93.5).contains(&behind) && !is_right, "{behind}");
    let told = log.text();
    assert_eq!(told.matches("behind the API server's").count(), 1, "{told}");
    let (ahead, is_right) = shown(&[-95]).await;
    assert!((93.5..95.5).contains(&ahead) && !is_right, "{ahead}");
    assert_eq!(shown(&[95, 0]).await, (0.0, true));
}

/// The measure is about the clock and not about the network.
#[tokio::test]
async fn a_slow_or_odd_answer_shows_nothing() {
    let config = config();
    let clients = served_by(&config, |_request| async {
        let mut answer = answer(200, node_body("a"));
        answer.headers_mut().insert(DATE, "yesterday".parse().unwrap());
        Ok(answer)
    });
    nodes(&clients.main).get("a").await.unwrap();
    assert_eq!(
        clients.clock.verdict(),
        Ok("no answer has shown the API server's clock yet".into())
    );
    assert!(exposed(&config).contains("ccm_apiserver_clock_difference_seconds 0"));
}
