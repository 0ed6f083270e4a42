//! Delays confirmed writes that are due again. Pure.
//!
//! Another client undoes the change, an admission policy drops it, or a cloud confirms it without
//! doing it: then the same write is due each time. So the program records the last write to each
//! object, by kind of write:
//!
//! * The same content is written three times without delay: two clients may have met by chance. Then
//!   the pause is 10 s, and twice as long each time, up to 5 minutes.
//! * If the answer itself does not show the write, it was refused: the pause is a minute.
//! * A write with other content never waits and begins a new count. The count also begins again
//!   after a write has lasted for 10 minutes.
//!
//! A repeated write is reported once, and again every hour: [`crate::repeat_reports`].

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use ccm_base::{At, Backoff, duration};
use serde::{Deserialize, Serialize};

/// The number of writes of the same content before the first pause.
pub const AT_ONCE: u32 = 3;
/// The pauses between further writes.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };
/// The pause after a write that the answer does not show.
const REFUSED: Duration = Duration::from_mins(1);
/// The time after which a write counts as accepted. Longer than the longest pause.
const ACCEPTED: Duration = Duration::from_mins(10);
/// The time after which a repeated write is reported again: the lifetime of an event.
const NEWS: Duration = Duration::from_hours(1);

/// A kind of write, such as `set_members`, or the field that is written.
pub type WriteKind = Cow<'static, str>;

/// The digest of the content of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content(u64);

impl Content {
    /// Returns the digest of this value.
    pub fn digest(value: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The recent writes to one object, by kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    made: HashMap<WriteKind, Made>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Made {
    content: Content,
    times: u32,
    at: At,
    /// True if the answer did not show the write.
    is_refused: bool,
    /// The time of the last report.
    told: Option<At>,
}

/// A write that has no effect, or whose effect does not last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeated {
    /// The kind of the write.
    pub kind: WriteKind,
    /// The number of confirmed writes in a row.
    pub times: u32,
    /// True if the answer itself did not show the write.
    pub is_refused: bool,
    /// The pause before the next write.
    pub wait: Duration,
    /// True if the program should report it now.
    pub is_news: bool,
}

/// The problem as text, without the wait.
impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, times, is_refused, .. } = self;
        if *is_refused {
            let pause = duration::format(REFUSED);
            return write!(
                f,
                "the write {kind} was answered as done, but the answer does not show it: an admission webhook or policy may undo it; retrying every {pause}"
            );
        }
        write!(
            f,
            "the write {kind} was answered as done {times} times in a row and is due again: something undoes it; retrying with growing pauses (max {})",
            duration::format(PAUSES.longest)
        )
    }
}

impl Made {
    /// Returns the pause after this write.
    fn pause(&self) -> Duration {
        if self.is_refused {
            return REFUSED;
        }
        let count = (self.times + 1).saturating_sub(AT_ONCE);
        if count == 0 { Duration::ZERO } else { PAUSES.after(count) }
    }

    fn repeated(&self, kind: WriteKind, now: At, is_news: bool) -> Repeated {
        let Self { times, at, is_refused, .. } = *self;
        Repeated { kind, times, is_refused, wait: (at + self.pause()).since(now), is_news }
    }
}

impl Repeats {
    /// Checks if this may be written now. Calls `content` only if a write of this kind must wait.
    ///
    /// # Errors
    ///
    /// The write must wait.
    pub fn check(
        &self,
        now: At,
        kind: &str,
        content: impl FnOnce() -> Content,
    ) -> Result<(), Repeated> {
        let waiting =
            self.made.get_key_value(kind).filter(|(_, made)| now < made.at + made.pause());
        match waiting.filter(|(_, made)| made.content == content()) {
            Some((kind, made)) => Err(made.repeated(kind.clone(), now, false)),
            None => Ok(()),
        }
    }

    /// Records a confirmed write. Returns it if it has been confirmed so often that it evidently
    /// does not last.
    pub fn made(
        &mut self,
        now: At,
        kind: impl Into<WriteKind>,
        content: Content,
    ) -> Option<Repeated> {
        self.add(now, kind.into(), content, false)
    }

    /// Records a confirmed write that the answer does not show.
    pub fn refused(
        &mut self,
        now: At,
        kind: impl Into<WriteKind>,
        content: Content,
    ) -> Option<Repeated> {
        self.add(now, kind.into(), content, true)
    }

    fn add(
        &mut self,
        now: At,
        kind: WriteKind,
        content: Content,
        is_refused: bool,
    ) -> Option<Repeated> {
        self.made.retain(|_, made| now < made.at + ACCEPTED);
        let before = self.made.remove(&kind).filter(|before| before.content == content);
        let times = before.as_ref().map_or(0, |before| before.times).saturating_add(1);
        let told = before.and_then(|before| before.told);
        let mut made = Made { content, times, at: now, is_refused, told };
        let mut repeated = None;
        if is_refused || times >= AT_ONCE {
            let is_news = told.is_none_or(|told| told + NEWS <= now);
            if is_news {
                made.told = Some(now);
            }
            repeated = Some(made.repeated(kind.clone(), now, is_news));
        }
        self.made.insert(kind, made);
        repeated
    }

    /// Returns true if all writes have lasted.
    pub fn is_settled(&self, now: At) -> bool {
        self.made.values().all(|made| made.at + ACCEPTED <= now)
    }

    /// Returns when the next delayed write may be repeated.
    pub fn next(&self, now: At) -> Option<At> {
        self.made.values().map(|made| made.at + made.pause()).filter(|at| now < *at).min()
    }

    /// Returns the writes that must wait now.
    pub fn waiting(&self, now: At) -> impl Iterator<Item = Repeated> {
        let waiting = self.made.iter().filter(move |(_, made)| now < made.at + made.pause());
        waiting.map(move |(kind, made)| made.repeated(kind.clone(), now, false))
    }
}

#[cfg(test)]
mod tests;
