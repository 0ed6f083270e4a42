//! Damps writes that are due again although they were answered as done. Pure.
//!
//! Another client takes the change back, an admission policy drops it, or a cloud says "done" and has
//! done nothing: then the same write is due at each look, as fast as the answers arrive. So of each
//! object it is remembered what was written last, by kind of write:
//!
//! * The same content is written three times at once: two clients may have met by chance. Then it
//!   waits 10 s, and twice as long each time, up to 5 minutes.
//! * What the answer itself does not show was refused: it is repeated after a minute.
//! * Another content is another wish. It never waits, and the count begins again; so does that of what
//!   has lasted for 10 minutes.
//!
//! What is repeated in this way is reported once, and again every hour: [`crate::repeat_reports`].

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use ccm_base::{At, Backoff, duration};

/// How often the same is written at once.
pub const AT_ONCE: u32 = 3;
/// The pauses after that.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(5) };
/// The pause after a write that the answer does not show.
const REFUSED: Duration = Duration::from_mins(1);
/// A change that lasted this long was accepted. Longer than the longest pause.
const ACCEPTED: Duration = Duration::from_mins(10);
/// When what is still repeated is news again: an event lives as long.
const NEWS: Duration = Duration::from_hours(1);

/// A kind of write, such as `set_members`, or the field that is written.
pub type Kind = Cow<'static, str>;

/// The digest of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content(u64);

impl Content {
    /// That of this value.
    pub fn of(value: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// What was written to one object of late, by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repeats {
    made: HashMap<Kind, Made>,
}

#[derive(Clone, Debug, PartialEq)]
struct Made {
    content: Content,
    times: u32,
    at: At,
    /// Whether the answer did not show it.
    is_refused: bool,
    /// When it was news.
    told: Option<At>,
}

/// A write whose effect does not come or does not last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Its kind.
    pub kind: Kind,
    /// How often it was answered as done, in a row.
    pub times: u32,
    /// Whether the answer itself did not show it.
    pub is_refused: bool,
    /// The pause until it is written again.
    pub wait: Duration,
    /// Whether it is to be reported.
    pub is_news: bool,
}

/// What is the matter, without the wait.
impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, times, is_refused, .. } = self;
        if *is_refused {
            let pause = duration::format(REFUSED);
            return write!(
                f,
                "the write {kind} was answered as done, but the answer does not show it: an admission webhook or policy may take it back; retrying every {pause}"
            );
        }
        write!(
            f,
            "the write {kind} was answered as done {times} times in a row and is due again: something takes it back; retrying with growing pauses (max {})",
            duration::format(PAUSES.longest)
        )
    }
}

impl Made {
    /// How long it is not repeated.
    fn pause(&self) -> Duration {
        if self.is_refused {
            return REFUSED;
        }
        let count = (self.times + 1).saturating_sub(AT_ONCE);
        if count == 0 { Duration::ZERO } else { PAUSES.after(count) }
    }

    fn repeated(&self, kind: Kind, now: At, is_news: bool) -> Repeated {
        let Self { times, at, is_refused, .. } = *self;
        Repeated { kind, times, is_refused, wait: (at + self.pause()).since(now), is_news }
    }
}

impl Repeats {
    /// Whether this may be written now. The content is asked for only if it matters.
    ///
    /// # Errors
    ///
    /// It has to wait.
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

    /// This was written, and answered as done. Returns whether it has been written so often that
    /// something must take it back.
    pub fn made(&mut self, now: At, kind: impl Into<Kind>, content: Content) -> Option<Repeated> {
        self.add(now, kind.into(), content, false)
    }

    /// This was answered as done, and the answer does not show it.
    pub fn refused(
        &mut self,
        now: At,
        kind: impl Into<Kind>,
        content: Content,
    ) -> Option<Repeated> {
        self.add(now, kind.into(), content, true)
    }

    fn add(&mut self, now: At, kind: Kind, content: Content, is_refused: bool) -> Option<Repeated> {
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

    /// When the next write that has to wait may be repeated.
    pub fn next(&self, now: At) -> Option<At> {
        self.made.values().map(|made| made.at + made.pause()).filter(|at| now < *at).min()
    }

    /// The kinds that have to wait now.
    pub fn waiting(&self, now: At) -> impl Iterator<Item = Repeated> {
        let waiting = self.made.iter().filter(move |(_, made)| now < made.at + made.pause());
        waiting.map(move |(kind, made)| made.repeated(kind.clone(), now, false))
    }
}

#[cfg(test)]
mod tests;
