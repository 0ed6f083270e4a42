//! Parts of explanations: texts of this program that end with what a person can do, and errors of the cloud.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_runtime::explain::{Explanation, Fares, NOTHING, mend};

/// An explanation of a text of this program: the last part is the mend. It follows a semicolon, or else a colon.
pub(crate) fn split(fares: Fares, text: &str) -> Explanation {
    match text.rsplit_once("; ").or_else(|| text.rsplit_once(": ")) {
        Some((cause, mend)) => Explanation::new(fares, cause, mend),
        None => Explanation::new(fares, text, NOTHING),
    }
}

/// An error of the cloud. Some pass by themselves.
pub(crate) fn of_error(error: &CloudError, cause: String) -> Explanation {
    let passes = matches!(
        error.kind,
        ErrorKind::Throttled
            | ErrorKind::Busy
            | ErrorKind::Stale
            | ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Malformed
    );
    let fares = if passes { Fares::Working } else { Fares::Blocked };
    Explanation::new(fares, cause, mend(error))
}
