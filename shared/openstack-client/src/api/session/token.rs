//! A token and the data that came with it.

use std::time::Duration;

use ccm_base::{clock, message::one_line};
use ccm_cloud::{CloudError, ErrorKind};
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::catalog::Catalog;
use crate::{
    api::{Answer, hidden::Hidden},
    text::MAX_MESSAGE,
};

/// The header in which Keystone hands out a token.
const SUBJECT: HeaderName = HeaderName::from_static("x-subject-token");
/// The session does not renew a token before this time, even if Keystone reports a shorter life.
const SHORTEST: Duration = Duration::from_secs(30);
/// Longer times do not make sense.
const LONGEST: Duration = Duration::from_hours(24 * 30);

/// A token from Keystone.
#[derive(Debug)]
pub struct Token {
    /// Counts the logins of a session.
    pub generation: u64,
    /// The token, for a header.
    pub value: HeaderValue,
    /// The project that it is good for, if it is for one.
    pub project: Option<Project>,
    /// Where the services are.
    pub catalog: Catalog,
    /// When we got the token.
    pub since: Instant,
    life: Option<Duration>,
}

/// A project of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Project {
    /// Its ID.
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

#[derive(Deserialize)]
struct Document {
    token: WireToken,
}

#[derive(Deserialize)]
struct WireToken {
    expires_at: Option<String>,
    issued_at: Option<String>,
    project: Option<Project>,
    #[serde(default)]
    catalog: Vec<Value>,
}

impl Token {
    /// Reads the answer to a login. It may hold anything, what is `hidden` included.
    pub fn read(answer: &Answer, generation: u64, hidden: &Hidden) -> Result<Self, CloudError> {
        let value = answer.headers.get(SUBJECT).filter(|value| !value.is_empty()).cloned();
        let mut value = value.ok_or_else(|| {
            answer.error(ErrorKind::Malformed, "the answer has no token in X-Subject-Token")
        })?;
        value.set_sensitive(true);
        let Document { token } = serde_json::from_slice(&answer.body).map_err(|error| {
            let why = one_line(&hidden.text(&error.to_string()), MAX_MESSAGE);
            let why = format!("the answer is not a token's document: {why}");
            answer.error(ErrorKind::Malformed, why)
        })?;
        Ok(Self {
            generation,
            value,
            life: token.life(),
            project: token.project,
            catalog: Catalog::read(token.catalog),
            since: Instant::now(),
        })
    }

    /// Returns true if it has not expired.
    pub fn lives(&self) -> bool {
        self.life.is_none_or(|life| self.since.elapsed() < life)
    }

    /// Returns true if four fifths of its time are over.
    pub fn ages(&self) -> bool {
        self.life.is_some_and(|life| self.since.elapsed() >= life.mul_f64(0.8))
    }
}

impl WireToken {
    /// Returns the life of the token, by Keystone's clock if Keystone says when it issued the
    /// token: ours may differ.
    fn life(&self) -> Option<Duration> {
        let time = |text: &Option<String>| text.as_ref()?.parse::<Timestamp>().ok();
        let ends = time(&self.expires_at)?;
        let begins = time(&self.issued_at).unwrap_or_else(clock::wall);
        let life = Duration::try_from(ends.duration_since(begins)).unwrap_or_default();
        Some(life.clamp(SHORTEST, LONGEST))
    }
}
