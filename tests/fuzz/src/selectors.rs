//! Label selectors: of settings and approvals, and of annotations of Services.

use std::collections::BTreeMap;

use ccm_cloud::NodeSelector as Plain;
use ccm_kube::selector::NodeSelector;
use ccm_objects::Shared;

/// Reads a selector from the first line; the others are labels.
pub(crate) fn read(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (selector, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let pairs = rest.split('\n').filter_map(|line| line.split_once('='));
    let labels: BTreeMap<String, String> =
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    match selector.parse::<NodeSelector>() {
        Ok(parsed) => {
            let shared =
                labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
            let shared: BTreeMap<Shared, Shared> = shared.collect();
            let selects = parsed.selects(&shared);
            // Messages and pages show it: what they show must mean the same.
            let again = parsed.to_string().parse::<NodeSelector>();
            let again = again.map(|again| again.selects(&shared));
            assert_eq!(again, Ok(selects), "{selector:?} is shown as {parsed}");
        }
        Err(error) => drop(error.to_string()),
    }
    let plain = Plain::parse(selector);
    let fulfilled = plain.fulfilled(&labels);
    assert!(!plain.matches(&labels) || fulfilled.len() <= labels.len());
}
