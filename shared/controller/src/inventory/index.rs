//! Lookup tables that copy no text: entry positions, sorted by the text of the entry.

use ccm_cloud::ProviderId;

use super::Known;

/// The n-th text under which an entry is indexed.
pub(super) type Texts = fn(&Known, usize) -> Option<&str>;

/// The provider ID, then its other spellings.
pub(super) fn spellings(entry: &Known, n: usize) -> Option<&str> {
    let id = match n.checked_sub(1) {
        None => Some(&entry.instance.provider_id),
        Some(n) => entry.instance.other_ids.get(n),
    };
    id.map(ProviderId::as_str)
}

/// The name, unless it is empty.
pub(super) fn names(entry: &Known, n: usize) -> Option<&str> {
    Some(entry.instance.name.as_str()).filter(|name| n == 0 && !name.is_empty())
}

/// The position of the entry, and the number of the text.
type Place = (u32, u32);

#[derive(Debug, Default)]
pub(super) struct Index {
    places: Vec<Place>,
}

fn text(entries: &[Known], texts: Texts, (at, n): Place) -> &str {
    let entry = usize::try_from(at).ok().and_then(|at| entries.get(at));
    entry.and_then(|entry| texts(entry, usize::try_from(n).ok()?)).unwrap_or_default()
}

impl Index {
    pub(super) fn new(entries: &[Known], texts: Texts) -> Self {
        let mut places: Vec<Place> = Vec::with_capacity(entries.len());
        for (at, entry) in (0_u32..).zip(entries) {
            places.extend((0_u32..).map_while(|n| {
                texts(entry, usize::try_from(n).ok()?)?;
                Some((at, n))
            }));
        }
        places
            .sort_by(|a, b| text(entries, texts, *a).cmp(text(entries, texts, *b)).then(a.cmp(b)));
        places.shrink_to_fit();
        Self { places }
    }

    /// The entries with this text, each once.
    pub(super) fn find<'a>(
        &self,
        entries: &'a [Known],
        texts: Texts,
        wanted: &str,
    ) -> impl Iterator<Item = &'a Known> + use<'a, '_> {
        let from = self.places.partition_point(|place| text(entries, texts, *place) < wanted);
        let places = self.places.get(from..).unwrap_or_default();
        let len = places.partition_point(|place| text(entries, texts, *place) == wanted);
        let mut last = None;
        places.iter().take(len).filter_map(move |(at, _)| {
            let again = last.replace(*at) == Some(*at);
            entries.get(usize::try_from(*at).ok()?).filter(|_| !again)
        })
    }
}
