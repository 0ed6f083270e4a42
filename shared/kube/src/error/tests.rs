use ccm_base::RetryClass;
use proptest::prelude::*;

use strum::VariantNames as _;

use super::*;

fn status(code: u16, reason: &str, message: &str) -> Status {
    Status::failure(message, reason).with_code(code)
}

fn api(code: u16, reason: &str) -> ApiError {
    kube::Error::Api(Box::new(status(code, reason, "m"))).into()
}

#[test]
fn statuses_become_the_errors_that_controllers_tell_apart() {
    let check = |code: u16, reason: &str, expect: ApiError| {
        assert_eq!(api(code, reason), expect, "{code} {reason}");
    };
    let m = || "m".to_owned();
    check(400, "BadRequest", ApiError::Invalid(m()));
    check(401, "Unauthorized", ApiError::Unauthorized);
    check(403, "Forbidden", ApiError::Forbidden(m()));
    check(404, "NotFound", ApiError::NotFound);
    check(404, "", ApiError::NotFound);
    check(405, "MethodNotAllowed", ApiError::Invalid(m()));
    check(409, "Conflict", ApiError::Conflict);
    check(409, "AlreadyExists", ApiError::AlreadyExists);
    check(410, "Expired", ApiError::Expired(m()));
    check(413, "RequestEntityTooLarge", ApiError::Invalid(m()));
    check(415, "UnsupportedMediaType", ApiError::Invalid(m()));
    check(422, "Invalid", ApiError::Invalid(m()));
    check(429, "TooManyRequests", ApiError::Throttled { retry_after: None });
    check(500, "InternalError", ApiError::Unavailable(m()));
    check(502, "", ApiError::Unavailable(m()));
    check(503, "ServiceUnavailable", ApiError::Unavailable(m()));
    check(504, "Timeout", ApiError::Timeout);
    check(302, "", ApiError::Unexpected { code: 302, message: m() });
    // An item of a watch may have only a reason.
    check(0, "Expired", ApiError::Expired(m()));
    check(0, "AlreadyExists", ApiError::AlreadyExists);
    check(0, "Forbidden", ApiError::Forbidden(m()));
    check(0, "Timeout", ApiError::Timeout);
    check(0, "news", ApiError::Unexpected { code: 0, message: m() });
}

/// A policy or webhook may be fixed within a minute: a denied request is retried like one without
/// the right.
#[test]
fn what_admission_denies_is_forbidden() {
    let policy = "nodes \"n2\" is forbidden: ValidatingAdmissionPolicy 'no-cidrs' with binding 'all' denied request: no";
    let webhook = "admission webhook \"nodes.example.com\" denied the request: no";
    for (code, reason, text) in [
        (422, "Invalid", policy),
        (403, "Forbidden", policy),
        (400, "BadRequest", webhook),
        (403, "Forbidden", webhook),
    ] {
        let error = ApiError::from(kube::Error::Api(Box::new(status(code, reason, text))));
        assert_eq!(error, ApiError::Forbidden(text.to_owned()), "{code}");
        assert_eq!(error.class(), RetryClass::Retry);
    }
    let wrong = "Node \"n2\" is invalid: metadata.labels: Invalid value: \"denied request\"";
    let error = ApiError::from(kube::Error::Api(Box::new(status(422, "Invalid", wrong))));
    assert_eq!(error, ApiError::Invalid(wrong.to_owned()));
}

#[test]
fn only_a_wrong_request_is_permanent() {
    let check = |error: ApiError, expect: RetryClass| assert_eq!(error.class(), expect, "{error}");
    let seven = Duration::from_secs(7);
    check(ApiError::Throttled { retry_after: Some(seven) }, RetryClass::RetryAfter(seven));
    check(ApiError::Throttled { retry_after: None }, RetryClass::Retry);
    check(ApiError::Invalid(String::new()), RetryClass::Permanent);
    for error in [
        api(401, ""),
        api(403, ""),
        api(404, ""),
        api(409, ""),
        api(410, ""),
        api(503, ""),
        api(504, ""),
    ] {
        check(error, RetryClass::Retry);
    }
}

#[test]
fn the_wait_that_the_server_asks_for_is_kept_and_clamped() {
    let check = |seconds: u32, expect: Option<u64>| {
        let details =
            serde_json::from_value(serde_json::json!({"retryAfterSeconds": seconds})).unwrap();
        let error =
            ApiError::from_status(&status(429, "TooManyRequests", "").with_details(details));
        assert_eq!(
            error,
            ApiError::Throttled { retry_after: expect.map(Duration::from_secs) },
            "{seconds}"
        );
    };
    check(0, None);
    check(1, Some(1));
    check(u32::MAX, Some(60));
}

#[test]
fn parse_errors_name_the_place_and_quote_nothing() {
    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only parsing it matters")]
    struct Secret {
        number: u32,
    }
    let check = |json: &str, expect: &str| {
        let error = kube::Error::SerdeError(serde_json::from_str::<Secret>(json).unwrap_err());
        assert_eq!(
            ApiError::from(error).to_string(),
            format!("cannot parse the response: {expect}"),
            "{json}"
        );
    };
    check(r#"{"number": "hunter2"}"#, "data error at line 1 column 20");
    check(r#"{"hunter2": 1}"#, "missing field `number` at line 1 column 14");
    check("hunter2", "syntax error at line 1 column 1");
    check(r#"{"number": 1"#, "eof error at line 1 column 12");
    let utf8 = kube::Error::FromUtf8(String::from_utf8(b"hunter2\xff".to_vec()).unwrap_err());
    assert_eq!(ApiError::from(utf8).to_string(), "cannot parse the response: not UTF-8");
}

#[test]
fn each_cause_is_named_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot send")]
    struct Outer(#[source] Inner);
    #[derive(Debug, thiserror::Error)]
    #[error("connection\nrefused")]
    struct Inner(#[source] std::fmt::Error);
    let error = kube::Error::Service(Box::new(Outer(Inner(std::fmt::Error))));
    let expect = format!("cannot send: connection refused: {}", std::fmt::Error);
    assert_eq!(ApiError::from(error), ApiError::Unavailable(expect));
}

#[test]
fn a_deadline_is_a_timeout_wherever_it_struck() {
    let late = || DeadlineExceeded(Duration::from_secs(30));
    let head = kube::Error::Service(Box::new(late()));
    let body = kube::Error::Service(Box::new(kube::Error::Service(Box::new(late()))));
    let stream =
        kube::Error::ReadEvents(std::io::Error::other(kube::Error::Service(Box::new(late()))));
    for error in [head, body, stream] {
        assert_eq!(ApiError::from(error), ApiError::Timeout);
    }
}

#[test]
fn missing_credentials_are_distinguished_from_refused_ones() {
    let auth = || kube::client::AuthError::AuthExec("no token".to_owned());
    let expect = ApiError::Credentials("failed exec auth: no token".to_owned());
    assert_eq!(ApiError::from(kube::Error::Auth(auth())), expect);
    assert_eq!(ApiError::from(kube::Error::Service(Box::new(auth()))), expect);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_error_is_one_line_of_bounded_length(code in any::<u16>(), reason in ".{0,20}", message in any::<String>(), repeat in 1_usize..200) {
        let error = ApiError::from_status(&status(code, &reason, &message.repeat(repeat)));
        let line = error.to_string();
        prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        prop_assert!(line.chars().count() < 2 * MESSAGE_LIMIT, "{}", line.len());
        prop_assert!(!error.reason().is_empty());
    }
}

#[test]
fn every_reason_is_listed() {
    let text = String::new;
    let answers = [
        ApiError::NotFound,
        ApiError::NoSuchPath(text()),
        ApiError::Conflict,
        ApiError::AlreadyExists,
        ApiError::Expired(text()),
        ApiError::Throttled { retry_after: None },
        ApiError::Invalid(text()),
        ApiError::Forbidden(text()),
        ApiError::Unauthorized,
        ApiError::Credentials(text()),
        ApiError::Timeout,
        ApiError::Unavailable(text()),
        ApiError::Decode(text()),
        ApiError::Unexpected { code: 0, message: text() },
    ];
    let said: Vec<_> = answers.iter().map(ApiError::reason).collect();
    assert_eq!(said, ApiReason::VARIANTS);
}
