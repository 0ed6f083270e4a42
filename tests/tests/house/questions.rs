//! A function whose name asks a question answers it with yes or no, and changes nothing.

use std::path::Path;

use super::tidy::{check, files, read, root};

/// The first words of such names.
const QUESTIONS: [&str; 8] = ["is_", "has_", "are_", "was_", "may_", "needs_", "must_", "can_"];

/// Returns the name of a function, its parameters, and what follows before the body.
fn signature(text: &str) -> Option<(&str, &str, &str)> {
    let (name, _) = text.split_at(text.find(['(', '<'])?);
    let (_, parameters) = text.split_once('(')?;
    let mut open = 1;
    let end = parameters.find(|letter| {
        open += i32::from(letter == '(') - i32::from(letter == ')');
        open == 0
    })?;
    let (parameters, rest) = parameters.split_at(end);
    Some((name, parameters, rest.split(['{', ';']).next()?))
}

/// Returns what is wrong with the function that this text begins with, if its name asks a question.
fn wrong(text: &str) -> Option<String> {
    let (name, parameters, rest) = signature(text)?;
    if !QUESTIONS.iter().any(|question| name.starts_with(question)) {
        return None;
    }
    if parameters.contains("&mut self") {
        return Some(format!("{name} changes its value: name the change"));
    }
    let result = rest.split_once(" -> ").map_or("()", |(_, result)| result);
    let result = result.split("where").next().unwrap_or_default().trim();
    let is_answer = ["bool", "Option<bool>"].contains(&result);
    (!is_answer).then(|| format!("{name} returns {result}: name what it does, or returns"))
}

/// Returns true if this file is code of the programs. In tests, a name is the promise that is checked.
fn is_product(path: &Path) -> bool {
    let path = path.strip_prefix(root()).unwrap_or(path);
    let is_source = |folder| {
        path.starts_with(folder) && path.components().any(|part| part.as_os_str() == "src")
    };
    let is_test = path.with_extension("").components().any(|part| part.as_os_str() == "tests");
    ["bins", "shared"].into_iter().any(is_source) && !is_test
}

#[test]
fn a_question_changes_nothing_and_is_answered() {
    let sources = files(&["rs"]).into_iter().filter(|path| is_product(path));
    let (mut functions, mut broken) = (0, Vec::new());
    for path in sources {
        for function in read(&path).split(" fn ").skip(1) {
            functions += 1;
            broken.extend(wrong(function).map(|wrong| format!("{}: {wrong}", path.display())));
        }
    }
    assert!(functions > 3000, "only {functions} functions were found");
    check("a function is named like a question, and is not one", &broken);
}
