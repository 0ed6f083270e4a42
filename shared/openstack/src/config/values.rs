//! Parses the values of `cloud.conf` whose spelling differs from the programs' own settings.

use ccm_settings::{SettingValue as _, quoted};
use ipnet::IpNet;

/// Returns the values of a key that may be given several times.
pub fn repeated(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Returns the network prefixes of a list, and its invalid entries.
pub fn networks(text: &str) -> (Vec<IpNet>, Vec<&str>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse::<IpNet>() {
            Ok(network) => good.push(network.trunc()),
            Err(_) => bad.push(part),
        }
    }
    (good, bad)
}

/// Parses keys of metadata, and beginnings of keys.
pub fn patterns(text: &str, _: &str) -> Result<Vec<String>, String> {
    let patterns = Vec::<String>::parse(text)?;
    let is_wrong = |part: &&String| part.find('*').is_some_and(|at| at + 1 < part.len());
    match patterns.iter().find(is_wrong) {
        Some(wrong) => Err(format!("{}: * may stand only at the end", quoted(wrong))),
        None => Ok(patterns),
    }
}

/// Checks where metadata is looked for. The value is not used.
pub fn search_order(text: &str, _: &str) -> Result<(), String> {
    const KNOWN: [&str; 2] = ["configDrive", "metadataService"];
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    if parts.len() <= KNOWN.len() && parts.iter().all(|part| KNOWN.contains(part)) {
        return Ok(());
    }
    Err(format!("must be one or two of {}, separated by a comma", KNOWN.join(", ")))
}
