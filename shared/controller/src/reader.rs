//! Asks the API server itself for one object, before a change that must not be decided from a store
//! that may be out of date.

use std::{marker::PhantomData, time::Duration};

use ccm_kube::{
    ApiError,
    store::{Rule, Stored},
};
use ccm_runtime::{
    program::{Context, Program},
    rights::Right,
};
use kube::{
    Client, Resource as _,
    api::{GetParams, Request},
    core::Status,
};
use tokio::time::timeout;

use crate::kind::{plural, right};

/// Returns the right that [`Reader::get`] needs for this kind.
pub fn get<K: Stored>() -> Right {
    right::<K>("get", "")
}

/// Reads objects of one kind.
pub struct Reader<K> {
    client: Client,
    timeout: Duration,
    kind: PhantomData<fn() -> K>,
}

impl<K: Stored> Reader<K> {
    /// Reads with the program's client; a call is bounded by `--kube-api-timeout`.
    pub fn new<P: Program>(context: &Context<P>) -> Self {
        let timeout = context.common.borrow().kube.timeout;
        Self { client: context.clients.main.clone(), timeout, kind: PhantomData }
    }

    /// Returns the whole object with this key, in the newest version of the API server. Returns
    /// `None` if the API server itself says that it does not exist.
    ///
    /// # Errors
    ///
    /// The answer is missing, or the key is invalid: nothing is known about the object.
    pub async fn get(&self, key: &str) -> Result<Option<K>, ApiError> {
        let (namespace, name) = match key.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, key),
        };
        if !namespace.into_iter().chain([name]).all(is_name) {
            return Err(ApiError::Invalid(format!("{key:?} is not the name of an object")));
        }
        // Without a resource version the answer does not come from a cache.
        let request = Request::new(K::Wire::url_path(&(), namespace))
            .get(name, &GetParams::default())
            .map_err(kube::Error::BuildRequest)?;
        let call = self.client.request::<K::Wire>(request);
        match timeout(self.timeout, call).await.map_err(|_| ApiError::Timeout)? {
            Ok(object) => {
                let object = K::read(object, &Rule::default()).map_err(ApiError::Decode)?;
                if object.uid().is_empty() || **object.key() != *key {
                    return Err(ApiError::Decode(format!("the answer is not about {key}")));
                }
                Ok(Some(object))
            }
            Err(kube::Error::Api(status)) if denies(&status, &plural::<K>(), name) => Ok(None),
            Err(error) => match ApiError::from(error) {
                ApiError::NotFound => Err(ApiError::NoSuchPath(key.to_owned())),
                error => Err(error),
            },
        }
    }
}

/// Returns true if this text can be one part of a path: anything else would ask another question.
fn is_name(text: &str) -> bool {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || sign == b'-' || sign == b'.';
    text.bytes().all(is_sign) && text.bytes().any(|sign| sign.is_ascii_alphanumeric())
}

/// Returns true if an API server says that it does not have an object of this name. A gateway's 404
/// does not prove that.
fn denies(status: &Status, plural: &str, name: &str) -> bool {
    status.reason == "NotFound"
        && status.details.as_ref().is_some_and(|about| about.kind == plural && about.name == name)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ccm_objects::Service;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    /// Returns a reader of an API server that gives this answer to every request for `default/web`.
    fn reader(code: u16, answer: &str) -> Reader<Service> {
        let answer = Bytes::from(answer.to_owned());
        let service = service_fn(move |request: Request<Body>| {
            let answer = answer.clone();
            async move {
                assert_eq!(request.uri().to_string(), "/api/v1/namespaces/default/services/web");
                let answer = Response::builder().status(code).body(Full::new(answer))?;
                Ok::<_, BoxError>(answer)
            }
        });
        let client = Client::new(service, "default");
        Reader { client, timeout: Duration::from_secs(1), kind: PhantomData }
    }

    fn not_found(kind: &str, name: &str) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
            "code": 404, "details": {"kind": kind, "name": name},
        })
    }

    #[tokio::test]
    async fn only_the_api_servers_own_word_says_that_there_is_none() {
        let missing = not_found("services", "web").to_string();
        assert_eq!(reader(404, &missing).get("default/web").await, Ok(None));
        let another = not_found("services", "other").to_string();
        let no_kind = not_found("", "").to_string();
        for (code, answer) in [
            (404, "404 page not found"),
            (404, &*another),
            (404, &*no_kind),
            (404, ""),
            (403, "{}"),
            (503, "{}"),
            (200, "<html>"),
            (200, "{}"),
            (200, r#"{"metadata": {"name": "web", "namespace": "other", "uid": "u-2"}}"#),
        ] {
            let found = reader(code, answer).get("default/web").await;
            assert!(found.is_err(), "{code} {answer}: {found:?}");
        }
    }

    #[tokio::test]
    async fn an_object_is_there_with_its_uid() {
        let web = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u-1"}});
        let found = reader(200, &web.to_string()).get("default/web").await;
        assert_eq!(found.unwrap().map(|service| service.uid), Some("u-1".into()));
    }

    #[tokio::test]
    async fn what_is_no_name_is_not_asked() {
        for key in ["default/", "/web", "", "default/a/b", "default/..", "a?b/web", "default/%2e"] {
            let found = reader(500, "").get(key).await;
            assert!(matches!(found, Err(ApiError::Invalid(_))), "{key}: {found:?}");
        }
    }
}
