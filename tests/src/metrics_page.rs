//! Generates `docs/reference/metrics.md` from the registered metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anyhow::Result;
use ccm_runtime::programs;

use crate::{
    measured::{Family, of_provider},
    printed,
};

/// Labels whose values depend on the cluster, the cloud or the build, with their
/// descriptions. Every other label has exactly the values of the page.
pub const OPEN: [(&str, &str); 21] = [
    (
        "api",
        "`apiserver`, or the API of the cloud: `external`; for OpenStack `identity`, `compute`, `network`, `load-balancer`",
    ),
    ("build_date", "when it was built, RFC 3339; empty in a build by hand"),
    ("clusterCIDR", "a network of `--cluster-cidr`"),
    ("code", "HTTP status of the answer; `<error>` without one"),
    ("commit", "commit that it was built from; empty in a build by hand"),
    ("compiler", "`rustc`"),
    ("git_commit", "as `commit`"),
    ("git_tree_state", "`clean` or `dirty`; empty in a build by hand"),
    ("git_version", "Quartet's version, with a leading `v`"),
    ("go_version", "always empty; upstream's dashboards ask for it"),
    ("host", "host and port of the API server"),
    ("major", "first part of the version"),
    ("minor", "second part of the version"),
    (
        "name",
        "name of the Lease, the controller or the queue: a constant of the program, except for the Lease's",
    ),
    ("object", "the kind of object that is written, for instance `Node`"),
    ("operation", "the provider's name of the request, for instance `list_instances`"),
    ("platform", "operating system and processor, for instance `linux/x86_64`"),
    ("request", "the request, for instance `server_list`"),
    ("step", "the kind of step as `/plan` shows it, for instance `addresses`"),
    ("version", "Quartet's version"),
    ("write", "the field that is written, or the call, for instance `finalizer` or `set_members`"),
];

/// Returns true if the page lists all values of this label of this metric.
pub fn is_closed(family: &Family, label: &str) -> bool {
    // lifecycle-ccm's metric has a single operation, which upstream has named.
    let own = label == "operation" && !family.name.starts_with("ccm_cloud_");
    own || OPEN.iter().all(|(open, _)| *open != label)
}

/// Returns the whole page.
pub fn page() -> Result<String> {
    let programs = programs::shipped()
        .map(|program| Ok((program.binary, printed::metrics(program.binary)?)))
        .collect::<Result<Vec<_>>>()?;
    let everywhere = |name: &str| {
        programs.iter().all(|(_, families)| families.iter().any(|family| family.name == name))
    };
    let mut page = INTRODUCTION.to_owned();
    let first = programs.iter().take(1).flat_map(|(_, families)| families);
    let common = first.filter(|family| everywhere(&family.name));
    let common: Vec<_> = common.map(|family| of_all_programs(family, &programs)).collect();
    section(&mut page, "Every program", "", &common.iter().collect::<Vec<_>>());
    for (program, families) in &programs {
        let own: Vec<_> = families.iter().filter(|family| !everywhere(&family.name)).collect();
        section(&mut page, program, "", &own);
    }
    let registry = ccm_providers::registry();
    for name in registry.names() {
        let families = of_provider(registry.get(&name)?.as_ref())?;
        let title = format!("Provider {name}");
        section(&mut page, &title, PROVIDERS, &families.iter().collect::<Vec<_>>());
    }
    page.push_str(LABELS);
    for (label, meaning) in OPEN {
        line(&mut page, format_args!("| `{label}` | {meaning} |"));
    }
    page.push_str(RENAMED);
    Ok(page)
}

/// The metric with the label values of all programs.
fn of_all_programs(family: &Family, programs: &[(&str, Vec<Family>)]) -> Family {
    let mut family = family.clone();
    let same = programs.iter().flat_map(|(_, families)| families);
    for other in same.filter(|other| other.name == family.name) {
        for (label, values) in &other.labels {
            family.labels.entry(label.clone()).or_default().extend(values.iter().cloned());
        }
    }
    family
}

const INTRODUCTION: &str = "\
# Metrics

What `/metrics` of each program reports.
`make docs` writes this page from what the programs register; a test compares it with them, and a scenario with what running programs report.

* The format is OpenMetrics if the client asks for it, as Prometheus does, and otherwise Prometheus' older text format.
* A counter ends in `_total`. A histogram `x` has the series `x_bucket` (label `le`), `x_sum` and `x_count`.
* A metric with labels does not exist before its first event, as with most exporters: `absent()` is not a sign of a defect, `or vector(0)` helps in a query.
* Stability as Kubernetes has it: `ALPHA` may change with a release, `BETA` keeps name and labels.
* Names without `ccm_` are upstream's, so that dashboards made for cloud-controller-manager go on working.
* No label holds a node's name, so the number of series does not grow with the cluster.
* A key of a work queue is the name of a node, in service-ccm the namespace and name of a Service.
* Unless the meaning says otherwise, both replicas report everything; what only a leader does stands still on a standby.

What to look at first: [operate](../how-to/operations.md), [rate limits](../how-to/rate-limits.md).
Metrics of [every program](#every-program), [node-ccm](#node-ccm), [lifecycle-ccm](#lifecycle-ccm), [service-ccm](#service-ccm), [route-ccm](#route-ccm), [the provider openstack](#provider-openstack).
";

/// Names from earlier releases, for users whose alerts and dashboards contain them.
const RENAMED: &str = "
## Renamed

| before | now | why |
|---|---|---|
| label `service` of `ccm_limiter_*` and `ccm_cloud_*` | label `api` | Prometheus' operator gives each target a label `service`, and the metric's became `exported_service` |
| `request=\"extension_list\"` of `openstack_api_*` | `request=\"network_extension_list\"` | openstack-cloud-controller-manager calls it that |

No label is called `cluster`, `container`, `endpoint`, `instance`, `job`, `namespace`, `node`, `pod` or `service`: those are for targets.
What openstack-cloud-controller-manager called otherwise: [differences from upstream](differences-from-upstream.md#metrics).
";

const PROVIDERS: &str = "What the provider itself measures.\nIts requests are also in `ccm_cloud_*` and `ccm_limiter_*` above.\n";

const LABELS: &str = "
## Labels whose values are not listed above

| label | what it says |
|---|---|
";

fn section(page: &mut String, title: &str, about: &str, families: &[&Family]) {
    line(page, format_args!("\n## {title}\n"));
    if families.is_empty() {
        page.push_str(
            "No metrics of its own: its requests are in `ccm_cloud_*` and `ccm_limiter_*` above.\n",
        );
        return;
    }
    if !about.is_empty() {
        line(page, format_args!("{about}"));
    }
    page.push_str(
        "| metric | type | labels | unit | meaning | stability |\n|---|---|---|---|---|---|\n",
    );
    for family in families {
        let labels: Vec<_> = family.labels.keys().map(|label| format!("`{label}`")).collect();
        line(
            page,
            format_args!(
                "| `{}` | {} | {} | {} | {} | {} |",
                family.name,
                family.kind,
                labels.join(", "),
                family.unit(),
                family.meaning(),
                family.stability()
            ),
        );
    }
    values(page, families);
}

/// Appends the possible values of the labels; metrics with the same values share a row.
fn values(page: &mut String, families: &[&Family]) {
    let mut rows: BTreeMap<(&str, &BTreeSet<String>), Vec<&str>> = BTreeMap::new();
    for family in families {
        for (label, values) in family.labels.iter().filter(|(label, _)| is_closed(family, label)) {
            rows.entry((label, values)).or_default().push(&family.name);
        }
    }
    if rows.is_empty() {
        return;
    }
    page.push_str("\n| label | of | values |\n|---|---|---|\n");
    for ((label, values), names) in rows {
        let code =
            |text: &str| if text.is_empty() { "(empty)".to_owned() } else { format!("`{text}`") };
        let names: Vec<_> = names.into_iter().map(code).collect();
        let values: Vec<_> = values.iter().map(|value| code(value)).collect();
        line(page, format_args!("| `{label}` | {} | {} |", names.join(", "), values.join(", ")));
    }
}

/// Adds a line. Writing to a String cannot fail.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").unwrap_or_default();
}
