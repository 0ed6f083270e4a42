//! Valid names, label keys and label values. Each function returns the problems.

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

fn bounded_by_alphanumerics(text: &str, alphanumeric: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| alphanumeric(*byte))
        && bytes.last().is_some_and(|byte| alphanumeric(*byte))
        && bytes.iter().all(|byte| alphanumeric(*byte) || inner.contains(byte))
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_dns_label(text: &str) -> bool {
    bounded_by_alphanumerics(text, is_lower, b"-")
}

fn too_long(text: &str, max: usize) -> Option<String> {
    (text.len() > max).then(|| format!("must be no more than {max} bytes"))
}

/// Checks names of namespaces and Services.
pub(in super::super) fn dns_label(text: &str) -> Vec<String> {
    let shape = (!is_dns_label(text)).then(|| DNS_LABEL.to_owned());
    too_long(text, 63).into_iter().chain(shape).collect()
}

/// Checks names of most objects.
pub(in super::super) fn dns_subdomain(text: &str) -> Vec<String> {
    let shape = (!text.split('.').all(is_dns_label)).then(|| DNS_SUBDOMAIN.to_owned());
    too_long(text, 253).into_iter().chain(shape).collect()
}

/// Returns a path segment: the minimum for any name.
pub(in super::super) fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| text.contains(*part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// Checks keys of labels, annotations and taints; finalizers.
pub(in super::super) fn qualified(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => return vec![QUALIFIED.to_owned()],
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    dns_subdomain(prefix)
                        .into_iter()
                        .map(|problem| format!("prefix part {problem}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if let Some(problem) = too_long(name, 63) {
        problems.push(format!("name part {problem}"));
    }
    if !bounded_by_alphanumerics(name, |byte| byte.is_ascii_alphanumeric(), b"-_.") {
        problems.push(format!("name part {LABEL_NAME}"));
    }
    problems
}

/// Checks values of labels and taints.
pub(in super::super) fn label_value(text: &str) -> Vec<String> {
    let legal = text.is_empty()
        || bounded_by_alphanumerics(text, |byte| byte.is_ascii_alphanumeric(), b"-_.");
    let shape = (!legal).then(|| LABEL_VALUE.to_owned());
    too_long(text, 63).into_iter().chain(shape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_and_not() {
        let check = |rule: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]| {
            for text in good {
                assert_eq!(rule(text), Vec::<String>::new(), "{text}");
            }
            for text in bad {
                assert!(!rule(text).is_empty(), "{text}");
            }
        };
        let long = "a".repeat(64);
        check(dns_label, &["a", "a-1", "9s"], &["", "-a", "a.b", "A", &long]);
        check(
            dns_subdomain,
            &["a.b", "1-2.c", &long],
            &["", "a..b", "a_b", "N1", &"a.".repeat(127)],
        );
        check(
            qualified,
            &["a", "A_b.c", "x.y/Z"],
            &["", "a b", "/a", "x/", "X.y/a", "a/b/c", &long],
        );
        check(label_value, &["", "a", "A.b_c-1"], &["a b", "-a", "a.", &long, "ä"]);
        check(path_segment, &["a", "a.b"], &[".", "..", "a/b", "a%b"]);
    }
}
