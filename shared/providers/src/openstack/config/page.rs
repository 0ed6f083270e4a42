//! The reference page of `cloud.conf`.

use std::fmt::Write as _;

use super::sections::{CLASSES, IGNORED, SECTIONS, keys};

const DIALECT: &str = "\
Names of sections and keys may be written in any case. `#` and `;` begin a comment unless they stand in
double quotes; blanks around a value count only within quotes. `\\\\`, `\\\"`, `\\n`, `\\t` and `\\b` are escapes, so
a backslash in a password is written twice; a backslash at the end of a line takes the next line in. A key
that is given twice counts as given last, but a repeatable one keeps all. What is not known is reported with the
nearest known name and passed over; a value of the wrong type stops the start.

A duration is written as in Go (`1m30s`, `250ms`) or as a whole number of seconds. True may also be written
`yes`, `on` or `1`, or as the key without `=`, and false `no`, `off` or `0`. A relative path begins at the folder of the
file that names it, `~/` at the home folder.
";

/// The environment variables that count.
const ENVIRONMENT: &str = "
### Environment

| variable | meaning |
|---|---|
| `OS_CLIENT_CONFIG_FILE` | Path of clouds.yaml, where clouds-file is not set. |
| `OS_CLOUD` | The entry of clouds.yaml, where cloud is not set. |
| `OS_CCM_REGIONAL` | Exactly true: provider IDs carry the region (openstack://region/uuid). Both spellings are always understood. |
| `HTTP_PROXY, HTTPS_PROXY, NO_PROXY` | Proxies for the requests to OpenStack, as curl understands them. |

Other variables (`OS_AUTH_URL`, `OS_PASSWORD` ...) are not read.
";

/// The reference of all settings, in Markdown.
pub fn reference() -> String {
    let mut page = DIALECT.to_owned();
    for (section, _) in SECTIONS {
        let name = if section == CLASSES { " \"name\"" } else { "" };
        let table = ccm_settings::keys(keys(section));
        // Writing to a String cannot fail.
        write!(page, "\n### `[{section}{name}]`\n\n{table}").unwrap_or_default();
    }
    let ignored = IGNORED.map(|name| format!("`[{name}]`")).join(" and ");
    page + "\n"
        + &ignored
        + " belong to other programs and are passed over in silence.\n"
        + ENVIRONMENT
}
