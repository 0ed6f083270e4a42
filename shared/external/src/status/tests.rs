use super::*;
use proptest::prelude::*;

#[test]
fn a_status_of_another_server_is_understood_by_its_code() {
    use ErrorKind as Kind;
    for (code, expect) in [
        (Code::Ok, Kind::Malformed),
        (Code::Cancelled, Kind::Unavailable),
        (Code::Unknown, Kind::Unavailable),
        (Code::InvalidArgument, Kind::Invalid),
        (Code::DeadlineExceeded, Kind::Timeout),
        (Code::NotFound, Kind::NotFound),
        (Code::AlreadyExists, Kind::Conflict),
        (Code::PermissionDenied, Kind::Forbidden),
        (Code::ResourceExhausted, Kind::Throttled),
        (Code::FailedPrecondition, Kind::Conflict),
        (Code::Aborted, Kind::Conflict),
        (Code::OutOfRange, Kind::Malformed),
        (Code::Unimplemented, Kind::Unsupported),
        (Code::Internal, Kind::Unavailable),
        (Code::Unavailable, Kind::Unavailable),
        (Code::DataLoss, Kind::Malformed),
        (Code::Unauthenticated, Kind::Unauthorized),
    ] {
        assert_eq!(from_status(&Status::new(code, "x")).kind, expect, "{code:?}");
    }
    let silent = from_status(&Status::new(Code::Internal, ""));
    assert!(silent.message.contains("Internal"), "{silent}");
}

/// Sent by Go's `status.WithDetails(&errdetails.RetryInfo{...},
/// &errdetails.RequestInfo{...})`.
#[test]
fn the_usual_details_are_read() {
    let retry =
        RetryInfo { retry_delay: Some(prost_types::Duration { seconds: 7, nanos: 500_000_000 }) };
    let request = RequestInfo { request_id: "abc".to_owned() };
    let any = |url: &str, value: Vec<u8>| prost_types::Any { type_url: url.to_owned(), value };
    let details = vec![
        any(RETRY_INFO_TYPE, retry.encode_to_vec()),
        any(REQUEST_INFO_TYPE, request.encode_to_vec()),
    ];
    let status = RpcStatus { code: 8, message: String::new(), details };
    let status =
        Status::with_details(Code::ResourceExhausted, "slow down", status.encode_to_vec().into());
    let expect = CloudError::new(ErrorKind::Throttled, "slow down")
        .with_retry_after(Duration::from_millis(7500))
        .with_request_id("abc");
    assert_eq!(from_status(&status), expect);
}

#[test]
fn nonsense_details_leave_the_code() {
    for details in [&b"\xff\xff\xff"[..], b"hello", &[0; 40]] {
        let status = Status::with_details(Code::PermissionDenied, "no", details.to_vec().into());
        assert_eq!(from_status(&status), CloudError::new(ErrorKind::Forbidden, "no"));
    }
}

#[test]
fn unknown_kinds_and_absurd_waits_are_tamed() {
    let wire = |kind, seconds| proto::Error {
        kind: Some(kind),
        message: Some("two\nlines\u{7}".to_owned()),
        request_id: Some(String::new()),
        retry_after: Some(prost_types::Duration { seconds, nanos: 0 }),
        maybe_done: None,
        unsent: None,
        subject: None,
    };
    for (kind, seconds, expect_kind, expect_wait) in [
        (0, 1, ErrorKind::Malformed, Some(Duration::from_secs(1))),
        (99, 1, ErrorKind::Malformed, Some(Duration::from_secs(1))),
        (2, -5, ErrorKind::Throttled, None),
        (2, i64::MAX, ErrorKind::Throttled, Some(MAX_RETRY_AFTER)),
        (2, i64::MIN, ErrorKind::Throttled, None), // prost-types 0.14 panics here
    ] {
        let error = CloudError::from(wire(kind, seconds));
        assert_eq!((error.kind, error.retry_after), (expect_kind, expect_wait), "{kind} {seconds}");
        assert!(error.message.contains("two lines"), "{error}");
        assert_eq!(error.request_id, None);
    }
}

/// Load balancers say it by `InProgress`.
#[test]
fn only_a_change_of_a_route_may_be_pending() {
    let wire = proto::Error {
        kind: Some(kind_to_wire(ErrorKind::Pending).into()),
        message: Some("port 7 of 9".to_owned()),
        ..proto::Error::default()
    };
    let route = change_error_from_wire(wire.clone());
    assert_eq!((route.kind, route.maybe_done), (ErrorKind::Pending, true));
    let other = CloudError::from(wire.clone());
    assert_eq!((other.kind, other.maybe_done), (ErrorKind::Malformed, true), "{other}");
    assert!(other.message.contains("PENDING") && other.message.contains("port 7 of 9"), "{other}");
    let any = prost_types::Any { type_url: ERROR_TYPE.to_owned(), value: wire.encode_to_vec() };
    let status = RpcStatus { code: 10, message: String::new(), details: vec![any] };
    let status = Status::with_details(Code::Aborted, "", status.encode_to_vec().into());
    assert_eq!(from_status(&status), other, "an error of a whole call");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_bytes_make_the_reader_stumble(code in 0..20_i32, message in ".{0,40}", details in prop::collection::vec(any::<u8>(), 0..200)) {
        let status = Status::with_details(Code::from_i32(code), message, details.into());
        let error = from_status(&status);
        prop_assert!(!error.message.is_empty());
    }
}
