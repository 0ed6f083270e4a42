//! Checks of the dashboards without Prometheus.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_tests::{
    cluster::repository,
    prometheus::dashboards::{Dashboard, list, text},
};
use serde_json::Value;

/// The checks, by name. Each gives all that is wrong.
pub static CHECKS: [(&str, Check); 6] = [
    ("every_panel_says_what_is_normal_and_what_to_do", explained),
    ("every_panel_is_of_grafanas_core_and_has_a_unit", plain),
    ("every_query_asks_the_chosen_data_source", sourced),
    ("links_lead_to_pages_that_are_there", linked),
    ("panels_do_not_overlap", placed),
    ("dashboards_have_names_of_their_own", named),
];

type Check = fn(&[Arc<Dashboard>]) -> Vec<String>;

/// Looks at every panel.
fn panels(all: &[Arc<Dashboard>], wrong: impl Fn(&Value) -> Option<String>) -> Vec<String> {
    let each = all.iter().flat_map(|board| {
        board.panels().into_iter().map(|panel| (board.name.as_str(), panel)).collect::<Vec<_>>()
    });
    each.filter_map(|(name, panel)| {
        Some(format!("{name}: {}: {}", text(&panel["title"]), wrong(panel)?))
    })
    .collect()
}

fn explained(all: &[Arc<Dashboard>]) -> Vec<String> {
    panels(all, |panel| {
        let description = text(&panel["description"]);
        let parts = ["**Normal:** ", "**Otherwise:** "];
        let missing = parts.into_iter().find(|part| !description.contains(part))?;
        Some(format!("the description has no {missing}"))
    })
}

fn plain(all: &[Arc<Dashboard>]) -> Vec<String> {
    const CORE: [&str; 4] = ["timeseries", "stat", "state-timeline", "table"];
    panels(all, |panel| {
        let kind = text(&panel["type"]);
        if !CORE.contains(&kind) {
            return Some(format!("{kind} is not one of {CORE:?}"));
        }
        let unit = text(&panel["fieldConfig"]["defaults"]["unit"]);
        (kind == "timeseries" && unit.is_empty()).then(|| "no unit".to_owned())
    })
}

fn sourced(all: &[Arc<Dashboard>]) -> Vec<String> {
    panels(all, |panel| {
        let mut asked = list(&panel["targets"]).chain(std::iter::once(panel));
        let other = asked.find(|target| target["datasource"]["uid"] != "${datasource}")?;
        Some(format!("asks {}", other["datasource"]))
    })
}

fn linked(all: &[Arc<Dashboard>]) -> Vec<String> {
    let of_panels = panels(all, |panel| list(&panel["links"]).find_map(dead));
    let of_boards = all.iter().flat_map(|board| {
        list(&board.json["links"])
            .filter_map(dead)
            .map(|why| format!("{}: {why}", board.name))
            .collect::<Vec<_>>()
    });
    of_panels.into_iter().chain(of_boards).collect()
}

/// The reason why a link is broken.
fn dead(link: &Value) -> Option<String> {
    let url = text(&link["url"]);
    if link["type"] == "dashboards" {
        return None;
    }
    let Some(page) = url.strip_prefix("${docs}/") else {
        return Some(format!("{url:?} does not begin with ${{docs}}/"));
    };
    let (file, anchor) = page.split_once('#').unwrap_or((page, ""));
    let Ok(page) = std::fs::read_to_string(repository().join("docs").join(file)) else {
        return Some(format!("there is no docs/{file}"));
    };
    let headings: BTreeSet<_> =
        page.lines().filter(|line| line.starts_with('#')).map(anchor_of).collect();
    (!anchor.is_empty() && !headings.contains(anchor))
        .then(|| format!("docs/{file} has no heading {anchor:?}"))
}

/// A heading as part of a URL.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let letters =
        words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Grafana's grid is 24 columns wide.
fn placed(all: &[Arc<Dashboard>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for board in all {
        let mut taken: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for panel in board.panels() {
            let side = |name: &str| panel["gridPos"][name].as_u64().unwrap_or_default();
            let title = text(&panel["title"]);
            if side("x") + side("w") > 24 || side("w") == 0 || side("h") == 0 {
                wrong.push(format!("{}: {title}: {}", board.name, panel["gridPos"]));
            }
            let cells = (side("x")..side("x") + side("w"))
                .flat_map(|x| (side("y")..side("y") + side("h")).map(move |y| (x, y)));
            let other = cells.filter_map(|cell| taken.insert(cell, title.to_owned())).last();
            wrong.extend(other.map(|other| format!("{}: {title} on {other}", board.name)));
        }
    }
    wrong
}

fn named(all: &[Arc<Dashboard>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for board in all {
        let uid = text(&board.json["uid"]);
        if uid != format!("quartet-{}", board.name) {
            wrong.push(format!("{}.json has the uid {uid:?}", board.name));
        }
        let ids: Vec<_> = board.panels().iter().map(|panel| panel["id"].to_string()).collect();
        if ids.iter().collect::<BTreeSet<_>>().len() != ids.len() {
            wrong.push(format!("{}: two panels have one id", board.name));
        }
        if board.json["timezone"] != "browser" || text(&board.json["refresh"]).is_empty() {
            wrong.push(format!("{}: no refresh, or not the browser's time", board.name));
        }
    }
    if all.is_empty() {
        wrong.push("there is no dashboard".to_owned());
    }
    wrong
}
