use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn body(secret: &str, status: StatusCode, body: &str) -> String {
    let raw = Raw { status, headers: HeaderMap::new(), body: Bytes::from(body.to_owned()) };
    let clean = Hidden::new([secret]).answer(raw).body;
    String::from_utf8(clean.to_vec()).unwrap()
}

#[test]
fn secrets_are_found_however_they_are_written() {
    let check = |secret: &str, text: &str, expect: &str| {
        assert_eq!(body(secret, StatusCode::BAD_REQUEST, text), expect, "{secret} in {text}");
    };
    check("a  b", r#"{"m":"no a  b!"}"#, r#"{"m":"no ***!"}"#);
    check("a  b", r#"{"m":"no \u0061  b"}"#, r#"{"m":"no ***"}"#);
    check("a\"b\\", r#"{"m":["a\"b\\"]}"#, r#"{"m":["***"]}"#);
    check("süß", r#"{"m":"s\u00fc\u00df"}"#, r#"{"m":"***"}"#);
    check("süß", "<p>süß</p>", "<p>***</p>");
    check("a\"b", r#"{"m":"a\"b"#, r#"{"m":"***"#);
    check("message", r#"{"message":"no message"}"#, r#"{"message":"no ***"}"#);
    check("401", r#"{"code":401,"m":"401"}"#, r#"{"code":401,"m":"***"}"#);
    check("s3", r#"{"m":"s3","m":"x"}"#, r#"{"m":"x"}"#);
    check("o", "Connection refused (os error 111)", "Connection refused (os error 111)");
    check("111", "os error 1111, errno 111)", "os error 1111, errno ***)");
    check("abc", "xabc", "xabc");
    check("1 1", "x1 1 1", "x1 ***");
    check("abcd", "xabcdx", "x***x");
    check("a", "a: no a, ä, aa.a", "***: no ***, ä, aa.***");
    check("", r#"{ "m": "x" }"#, r#"{ "m": "x" }"#);
    check("s3", r#"{ "m": "x" }"#, r#"{ "m": "x" }"#);
    let success = body("s3", StatusCode::OK, "{\"name\": \"s3\"}");
    assert_eq!(success, "{\"name\": \"s3\"}", "a name that happens to be the same");
}

#[test]
fn headers_are_shown_too() {
    let headers =
        HeaderMap::from_iter([(http::header::LOCATION, "http://x/?t=s3".parse().unwrap())]);
    let raw = Raw { status: StatusCode::FOUND, headers, body: Bytes::new() };
    let clean = Hidden::new(["s3"]).answer(raw);
    assert_eq!(clean.headers[http::header::LOCATION], "http://x/?t=***");
}

proptest! {
    #[test]
    fn no_text_of_a_document_keeps_a_secret(secret in "[^*]{4,12}", before in ".{0,8}", after in ".{0,8}") {
        let text = json!({ "fault": [{ "message": format!("{before}{secret}{after}") }] }).to_string();
        let clean: Value = serde_json::from_str(&body(&secret, StatusCode::CONFLICT, &text)).unwrap();
        let message = clean["fault"][0]["message"].as_str().unwrap();
        prop_assert!(message.contains(INSTEAD));
        prop_assert!(!message.contains(&secret), "{}", message);
    }

    #[test]
    fn a_short_secret_is_found_where_it_stands_alone(secret in "[^*]{1,3}", before in "(.{0,8} )?", after in "( .{0,8})?") {
        let clean = Hidden::new([secret.as_str()]).text(&format!("{before}{secret}{after}"));
        prop_assert!(clean.contains(INSTEAD), "{}", clean);
    }
}
