//! Decides whether a cloud is still the recorded one.

/// The known state of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the recorded one.
    Same(String),
    /// Nothing is recorded, and the cloud does not report its identity.
    Unknown,
    /// The cloud is recorded now: nothing was recorded, or a person has approved another one.
    Recorded {
        /// The recorded cloud.
        before: Option<String>,
        /// The one that it is now.
        present: String,
    },
    /// The cloud is not the recorded one.
    Changed {
        /// The recorded cloud.
        before: String,
        /// The one that it is now.
        present: String,
    },
    /// A cloud is recorded, but the present one does not report its identity: not yet, or not any
    /// more.
    Untold,
}

/// Decides from the recorded identity, the present one, and a person's approval of a change in
/// advance. An empty text counts as absent.
pub(super) fn decide(
    recorded: Option<String>,
    present: Option<String>,
    is_approved: bool,
) -> Standing {
    let stated = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    match (stated(recorded), stated(present)) {
        (None, None) => Standing::Unknown,
        (Some(before), Some(present)) if before.trim() == present.trim() => Standing::Same(present),
        (Some(before), Some(present)) if !is_approved => Standing::Changed { before, present },
        (before, Some(present)) => Standing::Recorded { before, present },
        (Some(_), None) if is_approved => Standing::Unknown,
        (Some(_), None) => Standing::Untold,
    }
}

impl Standing {
    /// Returns the cloud that calls are made to, if it says which one it is.
    pub(super) fn cloud(&self) -> Option<&str> {
        match self {
            Self::Same(present) | Self::Recorded { present, .. } => Some(present),
            Self::Unknown | Self::Changed { .. } | Self::Untold => None,
        }
    }

    /// Returns the reason why calls are refused, and the fix.
    pub(super) fn objection(&self, remedy: &str) -> Option<(String, String)> {
        match self {
            Self::Same(_) | Self::Unknown | Self::Recorded { .. } => None,
            Self::Changed { before, present } => Some((
                format!(
                    "the cloud is another one: it was {before:?}, it is {present:?}; nothing is changed"
                ),
                format!(
                    "if credentials or settings are wrong, correct them; only if the cluster has moved to this cloud: {remedy}"
                ),
            )),
            Self::Untold => Some((
                "the cloud does not report its identity; nothing is changed until it does"
                    .to_owned(),
                format!("only if it never will: {remedy}"),
            )),
        }
    }
}
