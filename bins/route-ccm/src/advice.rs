//! Parts of explanations.

use ccm_base::At;
use ccm_cloud::CloudError;
use ccm_runtime::explain::{Explanation, Fares, fares, mend, moment};

/// The mend of what needs nobody.
pub(crate) const WAIT: &str = "wait: nothing has to be done";

/// An error of the cloud. Some pass by themselves.
pub(crate) fn of_error(error: &CloudError, cause: String) -> Explanation {
    Explanation::new(fares(error), cause, mend(error))
}

/// An observer does not do what is due. `what`: what it has found out besides.
pub(crate) fn observed(what: &str) -> Explanation {
    Explanation::new(
        Fares::Working,
        format!("{what}--mode=observe writes nothing; the line decided says what is due"),
        "the controller that leads does it, or this one with --mode=control",
    )
}

/// A moment, as `since 2026-11-28T17:30:05Z, 4 min ago`.
pub(crate) fn since(at: At, now: At) -> String {
    format!("since {}", moment(at, now).trim_start_matches("at "))
}
