//! Checks of the dashboards without Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use ccm_runtime::programs;
use ccm_tests::{
    cluster::repository,
    prometheus::{
        dashboards::{self, Dashboard, Query, list, text},
        promql, rules,
    },
};
use serde_json::Value;

use super::tidy;

type Boards = Vec<Dashboard>;

fn check(wrong: impl Fn(&Boards) -> Vec<String>) {
    let all = dashboards::all().unwrap_or_else(|error| panic!("{error:#}"));
    assert!(!all.is_empty(), "there is no dashboard");
    let wrong = wrong(&all);
    assert!(wrong.is_empty(), "{} of them:\n  {}", wrong.len(), wrong.join("\n  "));
}

#[test]
fn every_panel_says_what_is_normal_and_what_to_do() {
    check(explained);
}

#[test]
fn every_panel_is_of_grafanas_core_and_has_a_unit() {
    check(plain);
}

#[test]
fn every_query_asks_the_chosen_data_source() {
    check(sourced);
}

#[test]
fn links_lead_to_pages_that_are_there() {
    check(linked);
}

#[test]
fn panels_do_not_overlap() {
    check(placed);
}

#[test]
fn dashboards_have_names_of_their_own() {
    check(named);
}

/// The pages for operators write `row *Queue*` for a row, and `*Depth*` for a panel or a row.
#[test]
fn rows_and_panels_that_the_pages_name_exist() {
    let pages = repository().join("docs/how-to");
    let pages = tidy::files(&["md"]).into_iter().filter(|page| page.starts_with(&pages));
    let lines: Vec<String> = pages
        .flat_map(|page| tidy::read(&page).lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.contains("ashboard") || line.contains("row *"))
        .collect();
    let named: Vec<_> = lines.iter().flat_map(|line| names_in(line)).collect();
    assert!(named.len() > 30, "the names were not found: {named:?}");
    check(|all| {
        let missing = named.iter().filter(|(line, is_row, name)| !has(all, line, *is_row, name));
        missing.map(|(line, _, name)| format!("{name}: {line}")).collect()
    });
}

/// Returns the names between asterisks, each with its line, and true if it must be a row's.
fn names_in(line: &str) -> Vec<(&str, bool, &str)> {
    let parts: Vec<_> = line.trim_start_matches("* ").split('*').collect();
    // A star between backticks is code.
    let is_name = |text: &str| !text.is_empty() && !text.contains('`');
    let names = parts.windows(2).step_by(2).filter(|pair| is_name(pair[1]));
    names.map(|pair| (line, pair[0].ends_with("row "), pair[1])).collect()
}

/// Returns true if each dashboard that the line names has this row or panel; if it does not name a
/// dashboard, one of them must have it.
fn has(all: &Boards, line: &str, is_row: bool, name: &str) -> bool {
    let shows = |board: &Dashboard| {
        let rows = list(&board.json["panels"]).filter(|panel| panel["type"] == "row");
        let mut all = rows.chain(board.panels().into_iter().filter(|_| !is_row));
        all.any(|panel| text(&panel["title"]) == name)
    };
    let named: Vec<_> = all.iter().filter(|board| line.contains(&board.name)).collect();
    if named.is_empty() { all.iter().any(shows) } else { named.into_iter().all(shows) }
}

/// A controller's suite sends the queries about its own metrics, so neither of two controllers
/// would send a query that mixes their metrics.
#[test]
fn every_query_is_about_one_program() {
    let known: Vec<_> = programs::shipped()
        .map(|program| (program, rules::known_to(program).expect("its metrics are printed")))
        .collect();
    check(|all| {
        let queries = all.iter().flat_map(|board| {
            let about = |query: Query| (Some(board), board.name.clone(), query.expression);
            board.queries().into_iter().map(about).collect::<Vec<_>>()
        });
        let rules = rules::all().expect("the rules are read");
        let rules = rules.into_iter().map(|rule| (None, rule.name, rule.expression));
        let is_asked = |board: Option<&Dashboard>, expression: &str| {
            known.iter().any(|(program, known)| {
                board.is_none_or(|board| board.is_about(*program))
                    && promql::metrics(expression).is_subset(known)
            })
        };
        let lost = queries.chain(rules).filter(|(board, _, text)| !is_asked(*board, text));
        lost.map(|(_, name, expression)| format!("{name}: {expression}")).collect()
    });
}

/// Looks at every panel.
fn panels(all: &Boards, wrong: impl Fn(&Value) -> Option<String>) -> Vec<String> {
    let each = all.iter().flat_map(|board| {
        board.panels().into_iter().map(|panel| (board.name.as_str(), panel)).collect::<Vec<_>>()
    });
    each.filter_map(|(name, panel)| {
        Some(format!("{name}: {}: {}", text(&panel["title"]), wrong(panel)?))
    })
    .collect()
}

fn explained(all: &Boards) -> Vec<String> {
    panels(all, |panel| {
        let description = text(&panel["description"]);
        let parts = ["**Normal:** ", "**Otherwise:** "];
        let missing = parts.into_iter().find(|part| !description.contains(part))?;
        Some(format!("the description has no {missing}"))
    })
}

fn plain(all: &Boards) -> Vec<String> {
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

fn sourced(all: &Boards) -> Vec<String> {
    panels(all, |panel| {
        let mut asked = list(&panel["targets"]).chain(std::iter::once(panel));
        let other = asked.find(|target| target["datasource"]["uid"] != "${datasource}")?;
        Some(format!("asks {}", other["datasource"]))
    })
}

fn linked(all: &Boards) -> Vec<String> {
    let of_panels = panels(all, |panel| list(&panel["links"]).find_map(dead));
    let url = std::fs::read_to_string(repository().join("grafana/docs-url")).unwrap_or_default();
    let leads_elsewhere = |board: &&Dashboard| {
        let mut variables = list(&board.json["templating"]["list"]);
        !variables.any(|one| one["name"] == "docs" && one["query"] == url.trim())
    };
    let others = all.iter().filter(leads_elsewhere);
    let others: Vec<_> = others.map(|board| format!("{}: not {url}", board.name)).collect();
    let of_boards = all.iter().flat_map(|board| {
        list(&board.json["links"])
            .filter_map(dead)
            .map(|why| format!("{}: {why}", board.name))
            .collect::<Vec<_>>()
    });
    of_panels.into_iter().chain(of_boards).chain(others).collect()
}

/// Returns the reason why a link is broken.
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

/// Returns a heading as part of a URL.
fn anchor_of(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let letters =
        words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Checks the places of panels. Grafana's grid is 24 columns wide.
fn placed(all: &Boards) -> Vec<String> {
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

fn named(all: &Boards) -> Vec<String> {
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
    wrong
}
