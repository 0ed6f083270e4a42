//! Rules that say which parts of objects are kept.

/// A rule for what is kept of the objects of a store.
#[derive(Debug, Default)]
pub struct Rule<T> {
    /// Its number: the store's rules are counted.
    pub number: u32,
    /// The kept part.
    pub kept: T,
}
