use std::{
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::steps;

/// A point in time since the Unix epoch, for decisions that do not read a clock and for values that
/// another process reads. As text it is RFC 3339 with milliseconds.
///
/// It counts from the time of the wall clock when the process began. A text has the time of the
/// wall clock when the text is made or read. So neither a window that this process has begun nor
/// one that another process has left changes its length when the wall clock is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At(pub Duration);

impl At {
    /// Returns the time since `earlier`; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the first later point in time that is a multiple of `step`, in whole seconds.
    #[must_use]
    pub fn next_multiple_of(self, step: Duration) -> Self {
        let step = step.as_secs().max(1);
        Self(Duration::from_secs((self.0.as_secs() / step).saturating_add(1).saturating_mul(step)))
    }
}

impl At {
    /// Returns the time of the wall clock then.
    fn wall(self) -> Result<Timestamp, jiff::Error> {
        Timestamp::UNIX_EPOCH.checked_add(self.0)?.checked_add(steps::since_start())
    }
}

impl Add<Duration> for At {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

impl Sub<Duration> for At {
    type Output = Self;

    fn sub(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }
}

/// Converts to the moment at which the wall clock has this time. Times before the epoch become the
/// epoch.
impl From<Timestamp> for At {
    fn from(time: Timestamp) -> Self {
        let time = time.as_duration() - steps::since_start();
        Self(Duration::try_from(time).unwrap_or_default())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.wall().map_err(|_| fmt::Error)?;
        write!(f, "{time:.3}")
    }
}

impl FromStr for At {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse::<Timestamp>().map(Self::from)
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let time = self.wall().map_err(ser::Error::custom)?;
        to.collect_str(&format_args!("{time:.3}"))
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::clock::while_set_by;

    #[test]
    fn a_moment_as_text_is_read_back_to_the_millisecond() {
        let at = At(Duration::from_millis(1_763_836_412_345));
        assert_eq!(at.to_string(), "2025-11-22T18:33:32.345Z");
        assert_eq!(at.to_string().parse::<At>().ok(), Some(at));
    }

    #[test]
    fn moments_can_be_read_as_another_process_wrote_them() {
        let at = At(Duration::from_millis(1_763_836_412_345));
        let text = |at: At| serde_json::to_string(&at).unwrap();
        let set = SignedDuration::from_millis(-5_000);
        let written = while_set_by(set, || text(at));
        assert_eq!(written, "\"2025-11-22T18:33:27.345Z\"");
        assert_eq!(text(at), "\"2025-11-22T18:33:32.345Z\"");
        let read = |text: &str| serde_json::from_str::<At>(text).unwrap();
        assert_eq!(while_set_by(set, || read(&written)), at);
        assert_eq!(read(&written), at - Duration::from_secs(5));
    }

    #[test]
    fn moments_never_go_below_zero() {
        let (early, late) = (At(Duration::from_secs(1)), At(Duration::from_secs(3)));
        assert_eq!(
            (late.since(early), early.since(late)),
            (Duration::from_secs(2), Duration::ZERO)
        );
        assert_eq!(early - Duration::from_secs(2), At::default());
        let step = Duration::from_secs(30);
        assert_eq!(early.next_multiple_of(step), At(step));
        assert_eq!(At(step).next_multiple_of(step), At(step * 2));
        assert_eq!("1969-12-31T23:59:59Z".parse::<At>().ok(), Some(At::default()));
    }
}
