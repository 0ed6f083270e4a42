//! Negotiates the form of responses.

use http::header;

use super::{request::RequestInfo, status::StatusError};

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Yaml,
    /// Rows and columns.
    Table,
    /// Objects with only their metadata.
    Metadata,
    /// Discovery of all groups in one response, in the given version.
    Discovery(&'static str),
}

/// Returns the first form in the client's list that this server supports.
pub(super) fn form(info: &RequestInfo) -> Result<Form, StatusError> {
    let accept = info.header(header::ACCEPT);
    if accept.trim().is_empty() {
        return Ok(Form::Json);
    }
    accept.split(',').find_map(form_of).ok_or_else(|| {
        let message =
            "only the following media types are accepted: application/json, application/yaml";
        StatusError::new(406, "NotAcceptable", message)
    })
}

fn form_of(clause: &str) -> Option<Form> {
    let mut parts = clause.split(';').map(str::trim);
    let media = parts.next()?;
    let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let parameter = |name: &str| {
        parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| *value)
    };
    match (media, parameter("as"), parameter("g"), parameter("v")) {
        ("application/yaml", "", _, _) => Some(Form::Yaml),
        ("application/json" | "application/*" | "*/*", "", _, _) => Some(Form::Json),
        ("application/json", "Table", "meta.k8s.io", "v1") => Some(Form::Table),
        (
            "application/json",
            "PartialObjectMetadata" | "PartialObjectMetadataList",
            "meta.k8s.io",
            "v1",
        ) => Some(Form::Metadata),
        ("application/json", "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => {
            Some(Form::Discovery("v2"))
        }
        ("application/json", "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => {
            Some(Form::Discovery("v2beta1"))
        }
        _ => None,
    }
}

/// Returns true if the response is pretty-printed: on request, and for command-line tools.
pub(super) fn pretty(info: &RequestInfo) -> bool {
    if info.query.has("pretty") {
        return info.query.flag("pretty");
    }
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| info.user_agent.starts_with(tool))
}

/// Returns true if the client accepts gzip.
pub(super) fn gzip(info: &RequestInfo) -> bool {
    info.header(header::ACCEPT_ENCODING).split(',').any(|coding| {
        let (coding, quality) = coding.split_once(';').unwrap_or((coding, ""));
        coding.trim() == "gzip" && quality.trim() != "q=0"
    })
}

/// Returns the encoding of an object in a request body.
pub(super) fn decode_body(
    info: &RequestInfo,
    body: &[u8],
    kind: &str,
) -> Result<serde_json::Value, StatusError> {
    let media = info.header(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    let undecodable = |error: &dyn std::fmt::Display| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
             {error} ({})",
            String::from_utf8_lossy(body).chars().take(64).collect::<String>()
        ))
    };
    match media {
        "" | "application/json" => {
            serde_json::from_slice(body).map_err(|error| undecodable(&error))
        }
        "application/yaml" => serde_yaml_ng::from_slice(body).map_err(|error| undecodable(&error)),
        _ => Err(StatusError::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml (this simulated API server reads no protobuf)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn info(accept: &str) -> RequestInfo {
        let request =
            Request::builder().uri("/api/v1/nodes").header("accept", accept).body(()).unwrap();
        RequestInfo::new(&request.into_parts().0)
    }

    #[test]
    fn the_first_form_that_fits() {
        let check = |accept: &str, expect: Option<Form>| {
            assert_eq!(form(&info(accept)).ok(), expect, "{accept}");
        };
        check("", Some(Form::Json));
        check("*/*", Some(Form::Json));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table));
        check("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Some(Form::Json));
        check("application/json;as=Table;v=v9;g=meta.k8s.io", None);
        check("application/vnd.kubernetes.protobuf,application/json", Some(Form::Json));
        check("application/vnd.kubernetes.protobuf", None);
        check("application/yaml", Some(Form::Yaml));
        check(
            "application/json; as=PartialObjectMetadataList; g=meta.k8s.io; v=v1",
            Some(Form::Metadata),
        );
        check(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Some(Form::Discovery("v2")),
        );
    }
}
