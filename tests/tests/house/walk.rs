//! The page that walks through the code names functions that exist.

use super::tidy::{check, read, root};

const PAGE: &str = "docs/internal/walk.md";

/// Returns the texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_walk_names_functions_that_exist() {
    let page = read(&root().join(PAGE));
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let steps: Vec<_> = rows
        .filter_map(|row| {
            let mut words = quoted(row);
            Some((words.next()?, words.next()?))
        })
        .collect();
    assert!(steps.len() > 20, "{PAGE} has no steps: {steps:?}");
    let missing = steps.iter().filter(|(file, function)| {
        let path = root().join(file);
        !path.exists() || !read(&path).contains(&format!("fn {function}"))
    });
    let missing: Vec<_> = missing.map(|(file, function)| format!("{file}: {function}")).collect();
    check("the walk names functions that do not exist", &missing);
}
