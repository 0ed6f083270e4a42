//! Corrupts true answers.

use std::{io, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde_json::Value;

/// The body of an answer; an error cuts the connection.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Returns a body that is whole.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Empties every list in the answer's document. A body that is not JSON stays unchanged.
pub(super) fn without_lists(bytes: Bytes) -> Bytes {
    let Ok(Value::Object(mut document)) = serde_json::from_slice(&bytes) else { return bytes };
    for value in document.values_mut() {
        if let Value::Array(list) = value {
            list.clear();
        }
    }
    Value::Object(document).to_string().into()
}

/// Removes the objects with this `alias` from every list in the answer's document. A body that
/// is not JSON stays unchanged.
pub(super) fn without(bytes: &Bytes, alias: &str) -> Bytes {
    let Ok(Value::Object(mut document)) = serde_json::from_slice(bytes) else {
        return bytes.clone();
    };
    for list in document.values_mut().filter_map(Value::as_array_mut) {
        list.retain(|object| object["alias"] != alias);
    }
    Value::Object(document).to_string().into()
}

/// Returns the first half.
pub(super) fn half(bytes: &Bytes) -> Bytes {
    bytes.slice(..bytes.len() / 2)
}

/// Returns an answer that announces its full length, sends half and then breaks off.
pub(super) fn truncated(answer: Response<Bytes>) -> Response<Body> {
    let (mut parts, bytes) = answer.into_parts();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    let cut = io::Error::new(io::ErrorKind::ConnectionAborted, "cut by the fault proxy");
    let sent = half(&bytes);
    let broken = async move {
        // The headers and the first half must be sent first.
        tokio::time::sleep(Duration::from_millis(50)).await;
        Err(cut)
    };
    let frames = stream::iter([Ok(Frame::data(sent))]).chain(stream::once(broken));
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}
