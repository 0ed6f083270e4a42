//! The meaning of a failure for the watch.

use kube::core::Status;

use crate::error::ApiError;

/// A list or a watch failed.
pub(super) enum InformerFailure {
    /// A list or a page of it.
    List(kube::Error),
    /// A streamed list that ended before it was complete.
    Unfinished,
    /// The start of a watch.
    Start(kube::Error),
    /// A line of a watch, or its connection.
    Watch(kube::Error),
    /// An event of the type `ERROR`.
    Event(Box<Status>),
    /// A list or an object without a version.
    NoVersion,
}

impl InformerFailure {
    /// Returns true if the watch cannot continue from its version for certain.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Start(kube::Error::Api(status))
            | Self::Watch(kube::Error::Api(status))
            | Self::Event(status) => status.code == 410,
            Self::NoVersion => true,
            _ => false,
        }
    }

    /// Returns true if the server does not stream lists: it refuses the parameters, or ignores
    /// them.
    pub(super) fn is_unsupported(&self) -> bool {
        match self {
            Self::List(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
            Self::Unfinished => true,
            _ => false,
        }
    }

    /// Returns true if a server answered and did not accept the watch.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Start(_) | Self::Event(_) => true,
            Self::Watch(kube::Error::Api(status)) => !is_no_status(status),
            _ => false,
        }
    }

    /// Returns true if the watch may be unable to continue from its version. An unreachable server
    /// does not indicate that.
    pub(super) fn may_be_final(&self) -> bool {
        match self {
            Self::Start(kube::Error::Api(status)) | Self::Watch(kube::Error::Api(status)) => {
                is_no_status(status) || refuses(status)
            }
            Self::Start(kube::Error::SerdeError(_))
            | Self::Watch(kube::Error::SerdeError(_))
            | Self::NoVersion => true,
            Self::Event(status) => refuses(status),
            _ => false,
        }
    }

    pub(super) fn into_api_error(self, path: &str) -> ApiError {
        match self {
            Self::Watch(kube::Error::Api(status)) if is_no_status(&status) => {
                ApiError::Decode("a line that is not an event".to_owned())
            }
            Self::List(error) | Self::Start(error) | Self::Watch(error) => match error.into() {
                ApiError::NotFound => ApiError::NoSuchPath(path.to_owned()),
                other => other,
            },
            Self::Event(status) => ApiError::from_status(&status),
            Self::Unfinished => ApiError::Timeout,
            Self::NoVersion => {
                ApiError::Decode("no resource version in a list or an object".to_owned())
            }
        }
    }
}

/// Returns true if the version is expired, too new for this server (after a restore), or unreadable
/// for it.
fn refuses(status: &Status) -> bool {
    matches!(status.code, 400 | 410 | 504)
}

/// Returns true for kube's result of a line that is JSON but neither an event nor a status.
fn is_no_status(status: &Status) -> bool {
    status.code == 0 && status.reason.is_empty()
}
