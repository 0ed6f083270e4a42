//! The known name that a misspelt one was probably meant to be.

/// The nearest of `known`, if one is near enough to be a misspelling.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters must be added, removed, replaced or swapped with their neighbour
/// to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(from != to)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = [
            "kubeconfig",
            "kube-api-qps",
            "kube-api-burst",
            "concurrent-node-syncs",
            "v",
            "config",
        ];
        let check =
            |name: &str, expect: Option<&str>| assert_eq!(nearest(name, known), expect, "{name}");
        check("kubeconfg", Some("kubeconfig"));
        check("concurent-node-sync", Some("concurrent-node-syncs"));
        check("kube-api-qsp", Some("kube-api-qps"));
        check("kubeapiqps", Some("kube-api-qps"));
        check("confgi", Some("config"));
        check("something-else", None);
        check("", Some("v"));
        check("\u{e4}\u{f6}", None);
    }

    #[test]
    fn counts_edits() {
        let check = |a: &str, b: &str, expect: usize| {
            assert_eq!(distance(a, b), expect, "{a} {b}");
            assert_eq!(distance(b, a), expect, "{b} {a}");
        };
        check("", "", 0);
        check("", "abc", 3);
        check("ab", "ba", 1);
        check("kitten", "sitting", 3);
    }
}
