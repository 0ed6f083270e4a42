//! Detects refused logins, and decides how long their credentials are not sent again.

use std::time::Duration;

use ccm_base::Backoff;
use ccm_cloud::{CloudError, ErrorKind};

/// The back-off after a rejected login with the same credentials. Keystone can lock an account
/// after a number of rejected logins (`lockout_failure_attempts`); only a successful login resets
/// its count.
pub const REFUSED: Backoff =
    Backoff { first: Duration::from_secs(30), longest: Duration::from_mins(30) };

/// The beginning of a login's error.
pub const LOGIN_AT: &str = "login at ";

/// Returns true if the credentials caused the failure.
pub const fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unauthorized | ErrorKind::Forbidden)
}

/// Returns true if Keystone refused a login. Another service can refuse something, too, but that
/// does not lock the account.
pub fn is_refused_login(error: &CloudError) -> bool {
    is_refusal(error.kind) && error.message.starts_with(LOGIN_AT)
}

/// Returns advice for the user if Keystone's message says more than that it refuses.
pub fn advice(error: &CloudError) -> &'static str {
    let is_locked = error.message.to_ascii_lowercase().contains("account is locked");
    match is_refusal(error.kind) && is_locked {
        true => {
            " (Keystone has locked the account: wait for the end of its lockout_duration, or have an administrator enable the user again)"
        }
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses that `docs/explanation/openstack.md` tells.
    #[test]
    fn refused_credentials_are_shown_ever_more_seldom() {
        let minutes: Vec<_> = (2..=9).map(|nth| REFUSED.after(nth).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(REFUSED.after(1), Duration::from_secs(30));
    }

    #[test]
    fn only_keystones_word_about_a_login_counts_against_the_account() {
        let check = |kind, message: &str, refused, advised: bool| {
            let error = CloudError::new(kind, message);
            assert_eq!(is_refused_login(&error), refused, "{error}");
            assert_eq!(!advice(&error).is_empty(), advised, "{error}");
        };
        let plain = "login at http://k by token refused: HTTP 401: no";
        let locked = "login at http://k by token refused: The account is locked for user: u1.";
        check(ErrorKind::Unauthorized, plain, true, false);
        check(ErrorKind::Forbidden, plain, true, false);
        check(ErrorKind::Unavailable, plain, false, false);
        check(ErrorKind::Unauthorized, "compute server_list: HTTP 401: no", false, false);
        check(ErrorKind::Unauthorized, locked, true, true);
        check(ErrorKind::Unavailable, locked, false, false);
    }
}
