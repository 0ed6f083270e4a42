//! Damps corrections that another writer undoes again and again. Pure.
//!
//! Two owners of one field would write it in turn as fast as the API server answers. So the same
//! correction of a field is made a few times at once, then with growing pauses.

use std::{collections::HashMap, time::Duration};

use ccm_base::Backoff;
use tokio::time::Instant;

/// How often a field is corrected at once.
const AT_ONCE: u32 = 3;
/// The pauses after that.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(10), longest: Duration::from_mins(2) };
/// A correction that lasted this long was accepted. Longer than the longest pause.
const ACCEPTED: Duration = Duration::from_mins(10);

/// The corrections of one object: by field, the value that was written.
#[derive(Clone, Debug, Default)]
pub struct Corrections {
    fields: HashMap<String, Correction>,
}

#[derive(Clone, Debug)]
struct Correction {
    value: String,
    times: u32,
    at: Instant,
}

/// A field that another writer sets as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contested {
    /// The field.
    pub field: String,
    /// How often it was corrected in a row.
    pub times: u32,
    /// The pause until it is corrected again.
    pub wait: Duration,
}

impl Corrections {
    /// Whether these fields may be set to these values now.
    ///
    /// # Errors
    ///
    /// The contested field that has to wait longest.
    pub fn check<'a>(
        &self,
        now: Instant,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), Contested> {
        let waits = fields.into_iter().filter_map(|(field, value)| {
            let known = self.known(now, field, value)?;
            let pause = PAUSES.after(known.times.checked_sub(AT_ONCE)? + 1);
            let wait = (known.at + pause).saturating_duration_since(now);
            Some(Contested { field: field.to_owned(), times: known.times, wait })
        });
        let longest = waits.max_by_key(|contested| contested.wait);
        longest.filter(|contested| !contested.wait.is_zero()).map_or(Ok(()), Err)
    }

    /// These fields were set to these values. Returns those that are contested.
    pub fn made<'a>(
        &mut self,
        now: Instant,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Vec<String> {
        self.fields.retain(|_, known| now < known.at + ACCEPTED);
        let mut contested = Vec::new();
        for (field, value) in fields {
            let times = self.known(now, field, value).map_or(0, |known| known.times) + 1;
            let correction = Correction { value: value.to_owned(), times, at: now };
            self.fields.insert(field.to_owned(), correction);
            if times >= AT_ONCE {
                contested.push(field.to_owned());
            }
        }
        contested
    }

    fn known(&self, now: Instant, field: &str, value: &str) -> Option<&Correction> {
        let known = self.fields.get(field)?;
        (known.value == value && now < known.at + ACCEPTED).then_some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: [(&str, &str); 1] = [("zone", "a")];

    /// The seconds of the corrections if another writer undoes each at once.
    fn corrected(seconds: u64) -> Vec<u64> {
        let (start, mut corrections) = (Instant::now(), Corrections::default());
        let mut times = Vec::new();
        for second in 0..seconds {
            let now = start + Duration::from_secs(second);
            if corrections.check(now, ZONE).is_ok() {
                corrections.made(now, ZONE);
                times.push(second);
            }
        }
        times
    }

    #[test]
    fn an_undone_correction_is_repeated_with_growing_pauses() {
        assert_eq!(corrected(60), [0, 1, 2, 12, 32]);
        let hour = corrected(3600);
        assert_eq!(hour[3..8], [12, 32, 72, 152, 272]);
        assert!(hour[7..].windows(2).all(|pair| pair[1] - pair[0] == 120), "{hour:?}");
    }

    #[test]
    fn other_values_and_old_corrections_do_not_count() {
        let (start, mut corrections) = (Instant::now(), Corrections::default());
        for _ in 0..2 {
            assert_eq!(corrections.made(start, ZONE), [""; 0]);
        }
        assert_eq!(corrections.made(start, ZONE), ["zone"]);
        let second = Duration::from_secs(1);
        let contested = Contested { field: "zone".to_owned(), times: 3, wait: 9 * second };
        assert_eq!(corrections.check(start + second, ZONE), Err(contested));
        assert_eq!(corrections.check(start + second, [("zone", "b")]), Ok(()));
        assert_eq!(corrections.check(start + second, [("region", "a")]), Ok(()));
        let later = start + ACCEPTED;
        assert_eq!(corrections.made(later, ZONE), [""; 0], "it counts again");
    }
}
