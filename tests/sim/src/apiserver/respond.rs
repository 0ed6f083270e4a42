//! Responses in the requested form: JSON, YAML, tables; pretty or compact.

use std::{io::Write as _, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    body::ResponseBody,
    collection::Listing,
    faults::Effects,
    negotiate::{self, Form},
    object::Object,
    request::{RequestInfo, Verb},
    resources::Resource,
    status::StatusError,
    table,
    watch::Watch,
};

/// The real server compresses responses from this size on.
const GZIP_MIN: usize = 128 * 1024;

/// The answer to a request, before it gets the requested form.
pub(super) enum Answer {
    Object {
        code: u16,
        resource: &'static Resource,
        object: Arc<Object>,
        warnings: Vec<String>,
    },
    /// A refused write with warnings.
    Refused {
        error: StatusError,
        warnings: Vec<String>,
    },
    List(Listing),
    Watch(Watch),
    /// Anything except a stored object.
    Value {
        code: u16,
        value: Value,
        media: &'static str,
    },
    Text {
        code: u16,
        text: String,
    },
    /// An empty protobuf document.
    EmptyProtobuf,
}

impl Answer {
    pub(super) fn json(value: Value) -> Self {
        Self::Value { code: 200, value, media: "application/json" }
    }
}

/// Returns a refusal, as a `Status` object.
pub(super) fn refusal(info: &RequestInfo, error: &StatusError) -> Response<ResponseBody> {
    let form = match negotiate::form(info) {
        Ok(Form::Yaml) => Form::Yaml,
        _ => Form::Json,
    };
    let mut response = value(info, error.code, &error.body(), form, "application/json");
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn warn(response: &mut Response<ResponseBody>, warnings: &[String]) {
    for warning in warnings {
        let text = format!("299 - {}", Value::from(warning.as_str()));
        if let Ok(text) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, text);
        }
    }
}

/// Returns a response in the requested form.
pub(super) fn answer(
    info: &RequestInfo,
    answer: Answer,
    effects: &Effects,
    now: Timestamp,
) -> Response<ResponseBody> {
    let form = match negotiate::form(info) {
        Ok(form) => form,
        Err(error) => return refusal(info, &error),
    };
    match answer {
        Answer::Object { code, resource, object, warnings } => {
            let mut response = whole_object(info, code, resource, &object, form, now);
            warn(&mut response, &warnings);
            response
        }
        Answer::Refused { error, warnings } => {
            let mut response = refusal(info, &error);
            warn(&mut response, &warnings);
            response
        }
        Answer::List(list) => listing(info, &list, form, effects, now),
        Answer::Watch(watch) => head(200, "application/json", ResponseBody::stream(watch.stream())),
        Answer::Value { code, value: content, media } => value(info, code, &content, form, media),
        Answer::Text { code, text } => {
            head(code, "text/plain; charset=utf-8", ResponseBody::pieces([Bytes::from(text)]))
        }
        Answer::EmptyProtobuf => head(
            200,
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            ResponseBody::pieces([]),
        ),
    }
}

fn head(code: u16, media: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn value(
    info: &RequestInfo,
    code: u16,
    value: &Value,
    form: Form,
    media: &'static str,
) -> Response<ResponseBody> {
    // JSON is also YAML.
    let media = if form == Form::Yaml { "application/yaml" } else { media };
    let text = if form == Form::Yaml || negotiate::pretty(info) {
        serde_json::to_string_pretty(value).unwrap_or_default()
    } else {
        value.to_string()
    };
    compressed(info, code, media, ResponseBody::pieces([Bytes::from(text)]), 0)
}

fn whole_object(
    info: &RequestInfo,
    code: u16,
    resource: &Resource,
    object: &Object,
    form: Form,
    now: Timestamp,
) -> Response<ResponseBody> {
    match form {
        Form::Table => {
            let options = table::Options { now, include: table::Include::of(info) };
            let table = table::of_one(resource, object, &options);
            value(info, code, &table, Form::Json, "application/json")
        }
        Form::Metadata => value(
            info,
            code,
            &table::metadata_only(resource, object),
            Form::Json,
            "application/json",
        ),
        Form::Json | Form::Discovery(_) if !negotiate::pretty(info) => {
            let body = ResponseBody::pieces(object.whole(resource));
            compressed(info, code, "application/json", body, 0)
        }
        form => value(info, code, &object.typed(resource), form, "application/json"),
    }
}

fn list_metadata(list: &Listing) -> Value {
    let mut metadata = json!({ "resourceVersion": list.revision.to_string() });
    if let Some(next) = &list.next {
        metadata["continue"] = json!(next);
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}

fn listing(
    info: &RequestInfo,
    list: &Listing,
    form: Form,
    effects: &Effects,
    now: Timestamp,
) -> Response<ResponseBody> {
    let resource = list.resource;
    match form {
        Form::Table => {
            let options = table::Options { now, include: table::Include::of(info) };
            let table = table::of_list(resource, &list.objects, &list_metadata(list), &options);
            value(info, 200, &table, Form::Json, "application/json")
        }
        Form::Metadata => {
            let items: Vec<_> =
                list.objects.iter().map(|object| table::metadata_only(resource, object)).collect();
            let content = json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": list_metadata(list), "items": items });
            value(info, 200, &content, Form::Json, "application/json")
        }
        Form::Json | Form::Discovery(_) if !negotiate::pretty(info) => {
            shared_items(info, list, effects)
        }
        form => {
            let items: Vec<_> = list
                .objects
                .iter()
                .map(|object| serde_json::from_slice(&object.item(resource)).unwrap_or(Value::Null))
                .collect();
            let content = json!({ "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
                "metadata": list_metadata(list), "items": items });
            value(info, 200, &content, form, "application/json")
        }
    }
}

/// Returns a list of shared item bytes.
fn shared_items(info: &RequestInfo, list: &Listing, effects: &Effects) -> Response<ResponseBody> {
    let resource = list.resource;
    let start = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        resource.kind,
        resource.api_version(),
        list_metadata(list)
    );
    let mut pieces = Vec::with_capacity(list.objects.len() * 2 + 2);
    let mut bytes = start.len();
    pieces.push(Bytes::from(start));
    for (index, object) in list.objects.iter().enumerate() {
        if index > 0 {
            pieces.push(Bytes::from_static(b","));
        }
        let item = effects.instead_of(&object.name).unwrap_or_else(|| object.item(resource));
        bytes += item.len();
        pieces.push(item);
    }
    pieces.push(Bytes::from_static(b"]}\n"));
    compressed(info, 200, "application/json", ResponseBody::pieces(pieces), bytes)
}

/// Compresses a large response to a read, if the client accepts it.
fn compressed(
    info: &RequestInfo,
    code: u16,
    media: &'static str,
    body: ResponseBody,
    size: usize,
) -> Response<ResponseBody> {
    let read = matches!(info.verb, Verb::Get | Verb::List);
    if !read || size < GZIP_MIN || !negotiate::gzip(info) {
        return head(code, media, body);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(&body.whole().unwrap_or_default());
    let Ok(small) = written.and_then(|()| encoder.finish()) else { return head(code, media, body) };
    let mut response = head(code, media, ResponseBody::pieces([Bytes::from(small)]));
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}
