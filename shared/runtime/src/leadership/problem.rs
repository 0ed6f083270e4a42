//! Why an attempt to take, renew or release the Lease failed.

use ccm_kube::ApiError;
use kube_leader_election::Error;
use strum::{IntoStaticStr, VariantNames};

/// The failure reasons of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Reason {
    /// No answer in time.
    Timeout,
    /// Another client modified the Lease first.
    Conflict,
    /// An RBAC permission is missing.
    Forbidden,
    /// The credentials are missing or rejected.
    Unauthorized,
    /// The API server is unreachable or cannot serve.
    Unavailable,
    /// Any other error.
    Other,
}

ccm_metrics::label!(Reason);

impl From<&ApiError> for Reason {
    fn from(error: &ApiError) -> Self {
        match error {
            ApiError::Timeout => Self::Timeout,
            ApiError::Conflict | ApiError::AlreadyExists => Self::Conflict,
            ApiError::Forbidden(_) => Self::Forbidden,
            ApiError::Unauthorized | ApiError::Credentials(_) => Self::Unauthorized,
            ApiError::Unavailable(_) | ApiError::Throttled { .. } => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

impl Reason {
    /// Returns a hint for the operator, if there is one.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Forbidden => {
                "retrying; the rights to get, create, update, list and watch leases are needed"
            }
            Self::Unauthorized => {
                "retrying; check the credentials in the kubeconfig or the service account"
            }
            Self::Conflict => "retrying; other clients write it too often",
            _ => "retrying",
        }
    }
}

/// Returns the API server's error behind an error of the library.
pub(super) fn api_error(error: Error) -> ApiError {
    match error {
        Error::GetLease(error)
        | Error::CreateLease(error)
        | Error::AcquireLease(error)
        | Error::RenewLease(error)
        | Error::ReleaseLease(error)
        | Error::Kube(error) => error.into(),
        Error::ApiError { response } => ApiError::from_status(&response),
        other => ApiError::Decode(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn each_answer_has_its_reason_and_reads_as_one_line() {
        let check = |code: u16, message: &str, expect: Reason, text: &str| {
            let status = || Box::new(Status::failure(message, "").with_code(code));
            for error in [
                Error::ApiError { response: status() },
                Error::RenewLease(kube::Error::Api(status())),
            ] {
                let error = api_error(error);
                assert_eq!((Reason::from(&error), error.to_string().as_str()), (expect, text));
            }
        };
        check(403, "leases is forbidden", Reason::Forbidden, "forbidden: leases is forbidden");
        check(401, "", Reason::Unauthorized, "the API server does not accept the credentials");
        check(409, "", Reason::Conflict, "the object has changed since it was read");
        check(504, "", Reason::Timeout, "no response in time");
        check(500, "etcd", Reason::Unavailable, "unavailable: etcd");
        check(422, "duration", Reason::Other, "rejected as invalid: duration");
    }

    #[test]
    fn the_librarys_own_errors_keep_their_text() {
        let error = api_error(Error::TraverseLease { key: "spec".to_owned() });
        assert_eq!(Reason::from(&error), Reason::Other);
        assert!(error.to_string().contains("`spec`"), "{error}");
    }
}
