//! "Did you mean ...?" for misspelt names.

/// Returns the known name that `name` most likely misspells, if one is close enough. Of equally
/// close names the alphabetically first wins. Case, dashes and underscores are ignored.
///
/// ```
/// use ccm_base::nearest;
///
/// let known = ["kube-api-qps", "kube-api-burst"];
/// assert_eq!(nearest("kube_api_QSP", &known), Some("kube-api-qps"));
/// assert_eq!(nearest("region", &known), None);
/// ```
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted = Plain::new(name);
    let away = |known: &&'a str| Some((wanted.away_from(&Plain::new(known))?, *known));
    known.iter().filter_map(away).min().map(|(_, known)| known)
}

/// A name without the characters that are ignored.
struct Plain {
    text: String,
    letters: usize,
}

impl Plain {
    fn new(name: &str) -> Self {
        let text = name.replace(['-', '_'], "").to_lowercase();
        Self { letters: text.chars().count(), text }
    }

    /// Returns the edit distance to `known`: letters added, removed, replaced or swapped with their
    /// neighbour. `None` if it is too large for a misspelling.
    fn away_from(&self, known: &Self) -> Option<usize> {
        let away = strsim::osa_distance(&self.text, &known.text);
        let near_enough = away <= (self.letters / 3).max(1);
        // Two one-letter names are one edit apart, but have nothing in common.
        let alike = away < self.letters.max(known.letters) || away == 0;
        (near_enough && alike).then_some(away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = [
            "concurrent-node-syncs",
            "config",
            "connectTimeout",
            "endpoint",
            "kube-api-burst",
            "kube-api-qps",
            "kubeconfig",
            "serverName",
            "tls",
            "v",
        ];
        for (name, expect) in [
            ("endpoitn", Some("endpoint")),
            ("Endpoint", Some("endpoint")),
            ("connect_timeout", Some("connectTimeout")),
            ("connect-time-out", Some("connectTimeout")),
            ("servername", Some("serverName")),
            ("server_nam", Some("serverName")),
            ("tl", Some("tls")),
            ("kubeconfg", Some("kubeconfig")),
            ("concurent-node-sync", Some("concurrent-node-syncs")),
            ("kube-api-qsp", Some("kube-api-qps")),
            ("kubeapiqps", Some("kube-api-qps")),
            ("confgi", Some("config")),
            ("vv", Some("v")),
            ("V", Some("v")),
            ("x", None),
            ("region", None),
            ("something-else", None),
            ("\u{e4}\u{f6}", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), expect, "{name}");
        }
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn the_nearest_goes_before_the_near_and_the_alphabet_decides_the_rest() {
        for (name, known, expect) in [
            ("tow", ["one", "two"], Some("two")),
            ("nodes", ["modes", "node"], Some("modes")),
            ("nodes", ["node", "modes"], Some("modes")),
            ("node-s", ["modes", "nodes"], Some("nodes")),
        ] {
            assert_eq!(nearest(name, &known), expect, "{name} of {known:?}");
        }
    }
}
