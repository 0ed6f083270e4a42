//! The label selector language: `a=b, c!=d, e in (f, g), h notin (i), j, !k, l>1`.

use std::collections::{BTreeMap, BTreeSet};

/// All of these must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    Missing,
    Greater(i64),
    Less(i64),
}

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum SelectorError {
    #[error("unable to parse requirement: found '{found}', expected: {expected}")]
    Unexpected { found: String, expected: &'static str },
    #[error("unable to parse requirement: found '{found}' expected: '('")]
    NoList { found: String },
    #[error(
        "unable to parse requirement: values[0][{key}]: Invalid value: {value:?}: must be an integer"
    )]
    NotANumber { key: String, value: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Sign(sign) => (*sign).to_owned(),
            Self::End => String::new(),
        }
    }
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let sign = SIGNS.iter().find_map(|sign| Some((*sign, rest.strip_prefix(sign)?)));
        if let Some((sign, after)) = sign {
            tokens.push(Token::Sign(sign));
            rest = after.trim_start();
            continue;
        }
        let end =
            rest.find(|c: char| c.is_whitespace() || "=!(),<>".contains(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        tokens.push(Token::Word(word.to_owned()));
        rest = after.trim_start();
    }
    tokens
}

struct Parser {
    tokens: std::vec::IntoIter<Token>,
}

impl Parser {
    fn next(&mut self) -> Token {
        self.tokens.next().unwrap_or(Token::End)
    }

    fn peek(&self) -> &Token {
        self.tokens.as_slice().first().unwrap_or(&Token::End)
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = *self.peek() == Token::Sign("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => {
                return Err(SelectorError::Unexpected {
                    found: other.text(),
                    expected: "identifier",
                });
            }
        };
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            let operator = if negated { Operator::Missing } else { Operator::Exists };
            return Ok(Requirement { key, operator });
        }
        let operator = match (self.next(), negated) {
            (Token::Sign("=" | "=="), false) => Operator::In(BTreeSet::from([self.value()?])),
            (Token::Sign("!="), false) => Operator::NotIn(BTreeSet::from([self.value()?])),
            (Token::Sign(">"), false) => Operator::Greater(self.number(&key)?),
            (Token::Sign("<"), false) => Operator::Less(self.number(&key)?),
            (Token::Word(word), false) if word == "in" => Operator::In(self.values()?),
            (Token::Word(word), false) if word == "notin" => Operator::NotIn(self.values()?),
            (other, _) => {
                return Err(SelectorError::Unexpected { found: other.text(), expected: OPERATORS });
            }
        };
        Ok(Requirement { key, operator })
    }

    /// Returns the value after `=`, possibly empty.
    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(_) => Ok(self.next().text()),
            Token::Sign(sign) => {
                Err(SelectorError::Unexpected { found: (*sign).to_owned(), expected: "identifier" })
            }
        }
    }

    fn number(&mut self, key: &str) -> Result<i64, SelectorError> {
        let value = self.value()?;
        value.parse().map_err(|_| SelectorError::NotANumber { key: key.to_owned(), value })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        match self.next() {
            Token::Sign("(") => {}
            other => return Err(SelectorError::NoList { found: other.text() }),
        }
        let mut values = BTreeSet::new();
        let mut fresh = true;
        loop {
            match self.next() {
                Token::Word(word) if fresh => {
                    values.insert(word);
                    fresh = false;
                }
                Token::Sign(",") => {
                    if fresh {
                        values.insert(String::new());
                    }
                    fresh = true;
                }
                Token::Sign(")") => {
                    if fresh {
                        values.insert(String::new());
                    }
                    return Ok(values);
                }
                other => {
                    let expected = if fresh { "',', ')' or identifier" } else { "',' or ')'" };
                    return Err(SelectorError::Unexpected { found: other.text(), expected });
                }
            }
        }
    }
}

impl LabelSelector {
    /// Parses; an empty text selects everything.
    pub(in super::super) fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { tokens: tokens(text).into_iter() };
        let mut requirements = Vec::new();
        if *parser.peek() == Token::End {
            return Ok(Self(requirements));
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Sign(",") => {}
                other => {
                    return Err(SelectorError::Unexpected {
                        found: other.text(),
                        expected: "',' or 'end of string'",
                    });
                }
            }
        }
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in super::super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&String>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::Missing => value.is_none(),
            Operator::Greater(bound) => number().is_some_and(|number| number > *bound),
            Operator::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matches() {
        let labels = BTreeMap::from(
            [("a", "1"), ("zone", "x"), ("empty", "")].map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
        let check = |selector: &str, expect: bool| {
            assert_eq!(
                LabelSelector::parse(selector).unwrap().matches(&labels),
                expect,
                "{selector}"
            );
        };
        check("", true);
        check("a=1", true);
        check("a==2", false);
        check("a!=2,b!=2", true);
        check("zone in (x, y)", true);
        check("zone notin (x,y)", false);
        check("other notin (x)", true);
        check("a,!b", true);
        check("!a", false);
        check("empty=", true);
        check("empty in ()", true);
        check("a>0,a<2", true);
        check("zone>0", false);
        check("in in (x)", false);
    }

    #[test]
    fn errors_read_like_the_real_ones() {
        let check = |selector: &str, expect: &str| {
            assert_eq!(
                LabelSelector::parse(selector).unwrap_err().to_string(),
                expect,
                "{selector}"
            );
        };
        check("a in", "unable to parse requirement: found '' expected: '('");
        check("a===b", "unable to parse requirement: found '=', expected: identifier");
        check(
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        check("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
        check(",", "unable to parse requirement: found ',', expected: identifier");
        check(
            "a>x",
            "unable to parse requirement: values[0][a]: Invalid value: \"x\": must be an integer",
        );
    }
}
