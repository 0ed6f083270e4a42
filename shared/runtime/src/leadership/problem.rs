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

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// No response within the attempt's time limit.
    #[error("no answer in time")]
    Late,
    /// The API server's error.
    #[error(transparent)]
    Api(ApiError),
    /// An error of the library itself.
    #[error("{0}")]
    Library(String),
}

impl Problem {
    pub(super) fn reason(&self) -> Reason {
        let Self::Api(error) = self else {
            return if matches!(self, Self::Late) { Reason::Timeout } else { Reason::Other };
        };
        match error {
            ApiError::Timeout => Reason::Timeout,
            ApiError::Conflict | ApiError::AlreadyExists => Reason::Conflict,
            ApiError::Forbidden(_) => Reason::Forbidden,
            ApiError::Unauthorized | ApiError::Credentials(_) => Reason::Unauthorized,
            ApiError::Unavailable(_) | ApiError::Throttled { .. } => Reason::Unavailable,
            _ => Reason::Other,
        }
    }

    /// A hint for the operator, if there is one.
    pub(super) fn remedy(&self) -> &'static str {
        match self.reason() {
            Reason::Forbidden => {
                "trying on; the rights to get, create, patch, list and watch leases are needed"
            }
            Reason::Unauthorized => {
                "trying on; check the credentials in the kubeconfig or the service account"
            }
            _ => "trying on",
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::GetLease(error)
            | Error::CreateLease(error)
            | Error::AcquireLease(error)
            | Error::RenewLease(error)
            | Error::ReleaseLease(error)
            | Error::Kube(error) => Self::Api(error.into()),
            Error::ApiError { response } => Self::Api(ApiError::from_status(&response)),
            other => Self::Library(other.to_string()),
        }
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
                let problem = Problem::from(error);
                assert_eq!((problem.reason(), problem.to_string().as_str()), (expect, text));
            }
        };
        check(403, "leases is forbidden", Reason::Forbidden, "forbidden: leases is forbidden");
        check(401, "", Reason::Unauthorized, "the API server does not accept the credentials");
        check(409, "", Reason::Conflict, "the object has changed since it was read");
        check(504, "", Reason::Timeout, "no answer in time");
        check(500, "etcd", Reason::Unavailable, "unavailable: etcd");
        check(422, "duration", Reason::Other, "refused as invalid: duration");
        assert_eq!(Problem::Late.reason(), Reason::Timeout);
    }

    #[test]
    fn what_the_library_stumbles_over_is_told() {
        let problem = Problem::from(Error::TraverseLease { key: "spec".to_owned() });
        assert_eq!(problem.reason(), Reason::Other);
        assert!(problem.to_string().contains("`spec`"), "{problem}");
    }
}
