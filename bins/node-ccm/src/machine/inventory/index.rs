//! A lookup table that does not copy texts: entry positions, sorted by the IDs of the entries.

use ccm_cloud::ProviderId;

use super::KnownInstance;

/// Returns the provider ID, then its other spellings.
fn spelling(entry: &KnownInstance, n: usize) -> Option<&str> {
    let id = match n.checked_sub(1) {
        None => Some(&entry.instance.provider_id),
        Some(n) => entry.instance.other_ids.get(n),
    };
    id.map(ProviderId::as_str)
}

/// The position of the entry, and the number of the text.
type Place = (u32, u32);

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    places: Vec<Place>,
}

fn text(entries: &[KnownInstance], (at, n): Place) -> &str {
    let entry = usize::try_from(at).ok().and_then(|at| entries.get(at));
    entry.and_then(|entry| spelling(entry, usize::try_from(n).ok()?)).unwrap_or_default()
}

impl Index {
    pub(super) fn new(entries: &[KnownInstance]) -> Self {
        let mut places: Vec<Place> = Vec::with_capacity(entries.len());
        for (at, entry) in (0_u32..).zip(entries) {
            places.extend((0_u32..).map_while(|n| {
                spelling(entry, usize::try_from(n).ok()?)?;
                Some((at, n))
            }));
        }
        places.sort_by(|a, b| text(entries, *a).cmp(text(entries, *b)).then(a.cmp(b)));
        places.shrink_to_fit();
        Self { places }
    }

    /// Returns the entries with this ID, each once.
    pub(super) fn find<'a>(
        &self,
        entries: &'a [KnownInstance],
        id: &str,
    ) -> impl Iterator<Item = &'a KnownInstance> + use<'a, '_> {
        let from = self.places.partition_point(|place| text(entries, *place) < id);
        let places = self.places.get(from..).unwrap_or_default();
        let len = places.partition_point(|place| text(entries, *place) == id);
        let mut last = None;
        places.iter().take(len).filter_map(move |(at, _)| {
            let again = last.replace(*at) == Some(*at);
            entries.get(usize::try_from(*at).ok()?).filter(|_| !again)
        })
    }
}
