use serde_json::{Value, json};

use super::{record::spoken, *};
use crate::explain::Explanation;

#[tokio::test(start_paused = true)]
async fn a_line_says_for_how_long_it_has_been_so() {
    let pages = pages(&[("nodes", Scope::Readiness, Ok("17 nodes watched"))]);
    let condition = pages.health.condition("config", Scope::Information, "refused");
    check(&pages, "/readyz", 200, "ok").await;
    let minutes = |count| tokio::time::advance(Duration::from_mins(count));
    tokio::time::advance(Duration::from_secs(59)).await;
    let young = "[+]nodes ok: 17 nodes watched\n[!]config: refused\nreadyz check passed\n";
    check(&pages, "/readyz?verbose", 200, young).await;
    minutes(2).await;
    condition.fail("refused again");
    let old = "[+]nodes ok: 17 nodes watched (for 2 min)\n[!]config: refused again (for 2 min)\nreadyz check passed\n";
    check(&pages, "/readyz?verbose", 200, old).await;
    check(&pages, "/healthz?verbose", 200, "healthz check passed\n").await;
    condition.pass("version 2");
    check(&pages, "/readyz", 200, "ok").await;
    minutes(61).await;
    let later = "[+]nodes ok: 17 nodes watched (for 1 h 3 min)\n[+]config ok: version 2 (for 1 h 1 min)\nreadyz check passed\n";
    check(&pages, "/readyz?verbose", 200, later).await;
    minutes(50 * 60).await;
    assert!(get(&pages, "/readyz?verbose").await.1.contains("watched (for 2 d 3 h)"));
}

#[tokio::test]
async fn the_checks_are_text_or_json() {
    let pages = pages(&[
        ("alive", Scope::Liveness, Ok("leads")),
        ("nodes", Scope::Readiness, Err("no list")),
        ("config", Scope::Information, Err("refused")),
    ]);
    let read = async |target: &str, status: u16| -> Value {
        let answer = answer(&pages, &Method::GET, target);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(answer.status().as_u16(), status, "{target}");
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let mut page: Value = serde_json::from_slice(&text).unwrap();
        for check in page["checks"].as_array_mut().unwrap() {
            let since = check.as_object_mut().unwrap().remove("since").unwrap();
            let since: jiff::Timestamp = since.as_str().unwrap().parse().unwrap();
            assert!(ccm_base::clock::wall().as_second() - since.as_second() < 60, "{since}");
        }
        page
    };
    let entry = |name: &str, passed: bool, fails_page: bool, detail: &str| json!({"name": name, "passed": passed, "fails_page": fails_page, "detail": detail});
    let alive = entry("alive", true, false, "leads");
    let config = entry("config", false, false, "refused");
    let all = json!([alive, entry("nodes", false, true, "no list"), config]);
    let page = json!({"page": "readyz", "passed": false, "checks": all});
    assert_eq!(read("/readyz?format=json", 500).await, page);
    assert_eq!(read("/readyz?verbose&format=json", 500).await, page);
    let excluded = json!([alive, entry("nodes", false, false, "no list"), config]);
    let page = json!({"page": "readyz", "passed": true, "checks": excluded});
    assert_eq!(read("/readyz?format=json&exclude=nodes", 200).await, page);
    let page =
        json!({"page": "healthz", "passed": true, "checks": [entry("alive", true, false, "")]});
    assert_eq!(read("/healthz?format=json", 200).await, page);
}

/// Each path of the list answers.
#[tokio::test]
async fn the_first_page_lists_the_others() {
    let pages = pages(&[]);
    pages.records.add(spoken("a record", 1).0);
    pages.explanations.add("toy", "Node", |_| Explanation::fine("it runs"));
    let (status, text) = get(&pages, "/").await;
    assert_eq!(status, 200);
    let words = text.split([' ', ';', '\n']).map(|word| word.trim_matches(','));
    let paths: Vec<_> = words.filter(|word| word.starts_with('/')).collect();
    assert!(paths.len() >= 9, "{paths:?}");
    for path in paths {
        assert_eq!(get(&pages, path).await.0, 200, "{path}");
    }
    let request = to(&Method::GET, "/").body(()).unwrap();
    assert_eq!(pages.answer(&request, false).status(), StatusCode::OK);
}
