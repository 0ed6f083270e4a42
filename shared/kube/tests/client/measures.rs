//! `rest_client_*` as dashboards expect it.

use futures::future::pending;
use http::{Method, Request};
use kube::api::{Patch, PatchParams, WatchParams};

use crate::support::{Served, answer, config, exposed, node_body, nodes, served_by};

#[tokio::test(start_paused = true)]
async fn requests_durations_and_sizes_are_counted() {
    let config = config();
    let clients = served_by(&config, |_request| async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        Ok(answer(200, node_body("a")))
    });
    nodes(&clients.main).get("a").await.unwrap();
    let patch = Patch::Merge(serde_json::json!({"a": 1}));
    nodes(&clients.main).patch("a", &PatchParams::default(), &patch).await.unwrap();
    let text = exposed(&config);
    let host = r#"host="127.0.0.1:80""#;
    for line in [
        format!(r#"rest_client_requests_total{{code="200",method="GET",{host}}} 1"#),
        format!(r#"rest_client_requests_total{{code="200",method="PATCH",{host}}} 1"#),
        format!(r#"rest_client_request_duration_seconds_bucket{{le="0.25",verb="GET",{host}}} 0"#),
        format!(r#"rest_client_request_duration_seconds_bucket{{le="0.5",verb="GET",{host}}} 1"#),
        format!(r#"rest_client_request_duration_seconds_bucket{{le="60.0",verb="GET",{host}}} 1"#),
        format!(r#"rest_client_request_size_bytes_sum{{verb="PATCH",{host}}} {:.1}"#, 7.0),
        format!(
            r#"rest_client_response_size_bytes_sum{{verb="GET",{host}}} {:.1}"#,
            node_body("a").len() as f64
        ),
        format!(r#"rest_client_rate_limiter_duration_seconds_count{{verb="GET",{host}}} 1"#),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_without_an_answer_count_as_errors() {
    let config = config();
    let clients = served_by(&config, |_request| pending::<Served>());
    nodes(&clients.main).get("a").await.unwrap_err();
    let text = exposed(&config);
    let line = r#"rest_client_requests_total{code="<error>",method="GET",host="127.0.0.1:80"} 1"#;
    assert!(text.contains(line), "{text}");
}

/// Methods, codes and names that a server or user makes up do not become labels.
#[tokio::test(start_paused = true)]
async fn label_values_are_bounded() {
    let config = config();
    let clients = served_by(&config, |request| async move {
        let code = if request.method() == Method::GET { 799 } else { 200 };
        Ok(answer(code, node_body("a")))
    });
    nodes(&clients.main).get("secret-name").await.unwrap_err();
    let watch = nodes(&clients.watch).watch(&WatchParams::default(), "1").await;
    assert!(watch.is_err());
    let odd =
        Request::builder().method("FROBNICATE").uri("/api/v1/nodes").body(Vec::new()).unwrap();
    clients.main.request_text(odd).await.unwrap();
    let text = exposed(&config);
    assert!(
        text.contains(
            r#"rest_client_requests_total{code="<other>",method="GET",host="127.0.0.1:80"} 2"#
        ),
        "{text}"
    );
    assert!(text.contains(r#"method="OTHER""#), "{text}");
    assert!(
        !text.contains("secret-name") && !text.contains("FROBNICATE") && !text.contains("799"),
        "{text}"
    );
    // The size of a watch's response is not recorded.
    assert!(
        text.contains(r#"rest_client_response_size_bytes_count{verb="GET",host="127.0.0.1:80"} 1"#),
        "{text}"
    );
}
