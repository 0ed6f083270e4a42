//! The identity of a candidate, which the Lease shows as its holder.

use uuid::Uuid;

/// Maximum length of an identity, which is also a field manager (128 bytes).
const LIMIT: usize = 128;

/// Creates a unique identity for this process: two replicas may share a host name. It names the
/// program, so that a candidate recognises a Lease that another program holds.
pub(super) fn new(program: &str) -> String {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    on_host(host.as_deref().unwrap_or("localhost"), program)
}

/// Returns the program that an identity names. `None` if it does not name one, like client-go's
/// identities, which are `<host>_<uuid>`.
pub(crate) fn program(identity: &str) -> Option<&str> {
    let (rest, unique) = identity.rsplit_once('_')?;
    Uuid::try_parse(unique).ok()?;
    rest.rsplit_once('_').map(|(_, program)| program)
}

fn on_host(host: &str, program: &str) -> String {
    let rest = format!("_{program}_{}", Uuid::new_v4());
    let host: String = host
        .chars()
        .filter(char::is_ascii_graphic)
        .take(LIMIT.saturating_sub(rest.len()))
        .collect();
    host + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_this_processs_own_and_never_too_long() {
        let check = |host: &str, start: &str| {
            let (first, second) = (on_host(host, "node-ccm"), on_host(host, "node-ccm"));
            assert_ne!(first, second, "two processes on one host");
            assert!(first.len() <= LIMIT, "{first}");
            assert!(first.starts_with(start), "{first}");
            assert_eq!(program(&first), Some("node-ccm"));
        };
        check("node-7.example.com", "node-7.example.com_node-ccm_");
        check(&"long".repeat(64), "longlong");
        check("büro 7\n", "bro7_");
        check("a_b", "a_b_node-ccm_");
        check("", "_");
    }

    #[test]
    fn an_identity_of_another_kind_names_no_program() {
        let unique = Uuid::new_v4();
        for other in ["", "me", "a_b", "a_b_c", &format!("node-7_{unique}"), &unique.to_string()] {
            assert_eq!(program(other), None, "{other}");
        }
    }
}
