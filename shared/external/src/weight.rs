//! Computes the memory that a decoded answer takes, from its bytes as they arrive.
//!
//! An element of a list may have two bytes on the wire and hundreds in memory, so the length of an
//! answer says little about its size. The size is added up field by field, as an upper limit: the
//! message takes less.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use prost::Message as _;

use super::{MAX_ANSWER, proto};

/// The maximum memory for the answers to one call of a controller, in bytes: for all pages of a
/// list, or for all parts of a lookup.
pub const MOST: usize = 48 << 20;
/// The maximum memory for one message of a stream, in bytes. Such a message is about one object.
pub const MOST_OF_ITEM: usize = 8 << 20;

/// The maximum size of an answer about a node, in bytes. Controllers keep one for each node.
pub const MOST_OF_NODE: usize = 64 << 10;

const MIB: usize = 1 << 20;

/// The size of an allocation without its content.
const ALLOCATION: usize = 32;
/// The capacity of a list with one element.
const FIRST: usize = 4;
/// The maximum ratio between the capacity of a list and its content.
const GROWTH: usize = 2;
/// The size of a tree with one entry: it has one node for 11 of them.
const FIRST_ENTRY: usize = 11 * 2 * size_of::<String>() + ALLOCATION;
/// The size of each further entry: a node may be half full.
const ENTRY: usize = 6 * size_of::<String>();

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// The name of a message, and its fields that may take more memory than they have bytes.
#[derive(Debug)]
struct Shape(&'static str, &'static [(u32, Holds)]);

#[derive(Clone, Copy, Debug)]
enum Holds {
    Numbers,
    Texts,
    Map,
    /// The index of the shape.
    Message(usize),
    /// The index of the shape, and the size of one message.
    Messages(usize, usize),
}

/// The answer of a method.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The index of the shape.
    shape: usize,
    /// True if it answers with several messages.
    pub streams: bool,
}

impl Answer {
    /// Returns the answer of the method with this path.
    pub fn by_path(path: &str) -> Option<Self> {
        ANSWERS.iter().find(|(known, _)| *known == path).map(|(_, answer)| *answer)
    }
}

/// The reason why an answer is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The answer is longer than this number of bytes.
    #[error("an answer of the provider is longer than {} MiB", .0 / MIB)]
    Long(usize),
    /// With this answer, the answers to a call take more than [`MOST`].
    #[error("the provider's answers take more than {} MiB of memory", MOST / MIB)]
    Heavy,
    /// The message takes more than [`MOST_OF_ITEM`].
    #[error(
        "the provider's answer about one object takes more than {} MiB of memory",
        MOST_OF_ITEM / MIB
    )]
    HeavyItem,
    /// The bytes are not a message.
    #[error("the provider's answer is not a message of the protocol")]
    Broken,
}

/// Counts the memory of the answers to one call of a controller. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// Takes what a message takes.
    fn take(&self, weight: usize) -> Result<(), Refused> {
        let used = self.0.fetch_add(weight, Ordering::Relaxed);
        if used.saturating_add(weight) > MOST { Err(Refused::Heavy) } else { Ok(()) }
    }

    /// Gives back what is not kept of a message.
    pub fn give_back(&self, weight: usize) {
        let less = |used: usize| Some(used.saturating_sub(weight));
        // The closure always returns a value.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}

/// Weighs a message.
#[derive(Debug)]
pub struct Scale {
    answer: Answer,
    budget: Budget,
    /// The message and those that it is in, the outermost first.
    levels: Vec<Level>,
    /// The number of bytes that have been read.
    at: u64,
    /// The next part of the message.
    next: Next,
    /// The bits of a number that have been read, and how many there are.
    number: (u64, u32),
    /// The size so far, in bytes.
    weight: usize,
}

#[derive(Debug)]
struct Level {
    end: u64,
    shape: &'static [(u32, Holds)],
    /// A bit for each field of the shape that has been there.
    begun: u64,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Key,
    /// A number, and what its field holds.
    Number(Option<Holds>, bool),
    /// The length of a field.
    Length(Option<Holds>, bool),
    /// This many bytes without a meaning.
    Content(u64),
}

impl Scale {
    /// Creates the weight of a message of this length.
    pub fn new(answer: Answer, budget: Budget, length: u64) -> Result<Self, Refused> {
        let most = if answer.streams { MOST_OF_ITEM } else { MAX_ANSWER };
        if length > most as u64 {
            return Err(Refused::Long(most));
        }
        let top = Level { end: length, shape: shape(answer.shape), begun: 0 };
        let (levels, next) = (vec![top], Next::Key);
        Ok(Self { answer, budget, levels, at: 0, next, number: (0, 0), weight: 0 })
    }

    /// Returns the size of the message, which has been read in full.
    pub fn end(self) -> Result<usize, Refused> {
        self.budget.take(self.weight).map(|()| self.weight)
    }

    /// Reads the next bytes of the message.
    pub fn read(&mut self, data: &[u8]) -> Result<(), Refused> {
        self.weigh(data)?;
        let used = self.budget.0.load(Ordering::Relaxed);
        if self.answer.streams && self.weight > MOST_OF_ITEM {
            return Err(Refused::HeavyItem);
        }
        if used.saturating_add(self.weight) > MOST { Err(Refused::Heavy) } else { Ok(()) }
    }

    fn weigh(&mut self, mut data: &[u8]) -> Result<(), Refused> {
        loop {
            if let Next::Content(left) = self.next {
                let part = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                data = data.get(part..).unwrap_or_default();
                self.at += part as u64;
                let left = left - part as u64;
                self.next = if left == 0 { Next::Key } else { Next::Content(left) };
                if left > 0 {
                    return Ok(());
                }
            }
            if matches!(self.next, Next::Key) && self.number.1 == 0 {
                while self.levels.len() > 1
                    && self.levels.last().is_some_and(|level| level.end == self.at)
                {
                    self.levels.pop();
                }
            }
            let Some((byte, rest)) = data.split_first() else { return Ok(()) };
            data = rest;
            self.at += 1;
            if self.levels.last().is_none_or(|level| self.at > level.end) {
                return Err(Refused::Broken);
            }
            let (number, bits) = self.number;
            let number = number | (u64::from(byte & 0x7f) << bits);
            if byte & 0x80 == 0 {
                self.number = (0, 0);
                self.take(number)?;
            } else if bits < 63 {
                self.number = (number, bits + 7);
            } else {
                return Err(Refused::Broken);
            }
        }
    }

    /// Takes a whole number.
    fn take(&mut self, number: u64) -> Result<(), Refused> {
        let level = self.levels.last_mut().ok_or(Refused::Broken)?;
        self.next = match self.next {
            Next::Key => {
                let place =
                    level.shape.iter().position(|(known, _)| u64::from(*known) == number >> 3);
                let holds = place.and_then(|place| level.shape.get(place)).map(|(_, holds)| *holds);
                let bit = place.map_or(0, |place| 1 << place);
                let is_first = level.begun & bit == 0;
                level.begun |= bit;
                match number & 7 {
                    0 => Next::Number(holds, is_first),
                    1 => Next::Content(8),
                    2 => Next::Length(holds, is_first),
                    5 => Next::Content(4),
                    _ => return Err(Refused::Broken),
                }
            }
            Next::Number(holds, is_first) => {
                if let Some(Holds::Numbers) = holds {
                    self.weight += element(size_of::<i32>(), is_first);
                }
                Next::Key
            }
            Next::Length(holds, is_first) => {
                let end = self.at.checked_add(number).filter(|end| *end <= level.end);
                let end = end.ok_or(Refused::Broken)?;
                let length = usize::try_from(number).map_err(|_| Refused::Broken)?;
                let text = if length == 0 { 0 } else { length + ALLOCATION };
                let (weight, inner) = match holds {
                    None => (text, None),
                    // Each byte may be a number.
                    Some(Holds::Numbers) => (GROWTH * size_of::<i32>() * length + ALLOCATION, None),
                    Some(Holds::Texts) => (element(size_of::<String>(), is_first) + text, None),
                    Some(Holds::Map) => {
                        let entry = if is_first { FIRST_ENTRY } else { ENTRY };
                        (entry + length + 2 * ALLOCATION, None)
                    }
                    Some(Holds::Message(inner)) => (0, Some(inner)),
                    Some(Holds::Messages(inner, size)) => (element(size, is_first), Some(inner)),
                };
                self.weight += weight;
                if let Some(inner) = inner {
                    self.levels.push(Level { end, shape: shape(inner), begun: 0 });
                    Next::Key
                } else {
                    Next::Content(number)
                }
            }
            Next::Content(_) => return Err(Refused::Broken),
        };
        Ok(())
    }
}

/// Returns the size of an answer about a node, in bytes.
pub fn of_node(answer: &proto::LookupAnswer) -> usize {
    let place = SHAPES.iter().position(|Shape(name, _)| *name == "LookupAnswer");
    let answer_of = Answer { shape: place.unwrap_or_default(), streams: false };
    let bytes = answer.encode_to_vec();
    let scale = Scale::new(answer_of, Budget::default(), bytes.len() as u64);
    scale.and_then(|mut scale| scale.read(&bytes).map(|()| scale.weight)).unwrap_or(usize::MAX)
}

/// Returns the weight of a message of this method. It comes in parts of this size.
#[cfg(any(test, feature = "fuzz"))]
pub fn weigh_parts(path: &str, bytes: &[u8], size: usize) -> Result<usize, Refused> {
    let answer = Answer::by_path(path).ok_or(Refused::Broken)?;
    let mut scale = Scale::new(answer, Budget::default(), bytes.len() as u64)?;
    bytes.chunks(size.max(1)).try_for_each(|part| scale.read(part))?;
    scale.end()
}

/// Returns the memory that an element of this size adds to a list.
const fn element(size: usize, is_first: bool) -> usize {
    if is_first { FIRST * size + ALLOCATION } else { GROWTH * size }
}

fn shape(index: usize) -> &'static [(u32, Holds)] {
    SHAPES.get(index).map_or(&[], |Shape(_, fields)| fields)
}

#[cfg(test)]
mod tests;
