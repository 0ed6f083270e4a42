//! What a person has been told: a lasting state is told when it begins, when it changes
//! and every ten minutes; a fact is told once.

use std::time::Duration;

use tokio::time::Instant;

/// How long what a person has been told is not repeated.
const REPEAT: Duration = Duration::from_mins(10);

/// The most lines kept; the oldest goes first.
const MOST: usize = 16;

/// What has been told of one object, by topic. A few topics with a state each: the
/// memory is bounded, and what it has let go is told anew.
#[derive(Debug)]
pub struct Told<T, S> {
    lines: Vec<Line<T, S>>,
}

#[derive(Debug)]
struct Line<T, S> {
    topic: T,
    state: S,
    at: Instant,
}

impl<T, S> Default for Told<T, S> {
    fn default() -> Self {
        Self { lines: Vec::new() }
    }
}

impl<T: PartialEq, S> Told<T, S> {
    /// Whether to tell this state now: it is another one than last time on this topic,
    /// or some time has passed. Counts as told then.
    pub fn again(&mut self, topic: T, state: impl PartialEq<S> + Into<S>) -> bool {
        let now = Instant::now();
        match self.lines.iter_mut().find(|line| line.topic == topic) {
            Some(line) if state == line.state && now.duration_since(line.at) < REPEAT => false,
            Some(line) => {
                *line = Line { topic, state: state.into(), at: now };
                true
            }
            None => self.tell(topic, state.into(), now),
        }
    }

    /// Whether to tell this fact now: it has not been told on this topic. Counts as told
    /// then.
    pub fn once(&mut self, topic: T, fact: impl PartialEq<S> + Into<S>) -> bool {
        let known = self.lines.iter().any(|line| line.topic == topic && fact == line.state);
        !known && self.tell(topic, fact.into(), Instant::now())
    }

    /// The state that was told last on a topic of [`Told::again`].
    pub fn last(&self, topic: &T) -> Option<&S> {
        self.lines.iter().find(|line| line.topic == *topic).map(|line| &line.state)
    }

    fn tell(&mut self, topic: T, state: S, at: Instant) -> bool {
        if self.lines.len() >= MOST {
            self.lines.remove(0);
        }
        self.lines.push(Line { topic, state, at });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lines = Told<&'static str, String>;

    #[tokio::test(start_paused = true)]
    async fn a_lasting_state_is_told_when_it_changes_and_every_ten_minutes() {
        let mut told = Lines::default();
        for (advance, state, expect) in [
            (0, "throttled", true),
            (1, "throttled", false),
            (0, "timeout", true),
            (0, "timeout", false),
            (0, "throttled", true),
            (599, "throttled", false),
            (1, "throttled", true),
        ] {
            tokio::time::advance(Duration::from_secs(advance)).await;
            assert_eq!(told.again("Waiting", state), expect, "{state} after {advance} s");
        }
        assert_eq!(told.last(&"Waiting").map(String::as_str), Some("throttled"));
        assert_eq!(told.last(&"Other"), None);
        assert!(told.again("Other", "throttled"), "another topic has states of its own");
        assert!(!told.again("Waiting", "throttled"), "and leaves this one alone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fact_is_told_once_and_the_memory_is_bounded() {
        let mut told = Lines::default();
        assert!(told.once("InvalidLabel", "a"));
        tokio::time::advance(REPEAT * 10).await;
        assert!(!told.once("InvalidLabel", "a"));
        assert!(told.once("LabelKept", "a"), "another topic");
        for number in 2..MOST {
            assert!(told.once("InvalidLabel", &*number.to_string()));
        }
        assert!(!told.once("InvalidLabel", "a"), "so many are kept");
        assert!(told.once("InvalidLabel", "one more"));
        assert!(told.once("InvalidLabel", "a"), "the oldest made room");
        assert!(!told.once("InvalidLabel", "one more"));
    }
}
