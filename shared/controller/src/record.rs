//! The flight recorder: the last events and effects of a machine, kept in memory, and their replay.
//!
//! | module | what it holds |
//! |---|---|
//! | `tape` | writes down what goes through a door |
//! | `ring`, `blocks` | the last segments within `--record-bytes`; their compression |
//! | `lists` | lists in events as differences |
//! | `format` | the lines of a record |
//! | `page` | the page `/record` |
//! | `cut` | the record of one object |
//! | `anonymous` | replaces the names and addresses of the cluster |
//! | [`replay`] | feeds a record to the machine of this version and compares the effects |
//!
//! A record is a ring of segments. Each begins with the machine's memory, so the rest can be replayed when
//! the oldest one goes.
//!
//! # How a program uses it
//!
//! It implements [`Recorded`], and opens the door to its machine by [`door`] (or by [`part`], with
//! several machines) instead of by [`Door::new`]. A line in `tests/replay` registers its records
//! for `make replay`, and a test of `tests/replay` calls [`replay::folder`] for the records in the
//! folders `tests/records` of the programs:
//!
//! ```text
//! let door = record::door(context, Machine::default());
//! pub const RECORDED: &[(&str, Replay)] = &[replay::named_replay::<Machine>()];
//! assert_eq!(replay::folder(RECORDED, Path::new("tests/records")), Ok(1));
//! ```
//!
//! # What a machine has to respect
//!
//! A replay has the same effects if the events, the memory and the machine follow these rules. Replay
//! the records of a program's tests to find what breaks them.
//!
//! * No iteration over a `HashMap` or `HashSet` may decide about effects or their order, because
//!   the order differs from process to process: use `BTreeMap` and `BTreeSet`, or sort. Addresses
//!   in memory must not decide either, for instance through `Arc::ptr_eq`.
//! * All of the memory is written. A field with `#[serde(skip)]` must not matter for effects.
//! * Keys of maps are texts, whole numbers, or enums without data, because JSON does not have
//!   others.
//! * Moments ([`ccm_base::At`]) are whole milliseconds, as the door gives them. An `f64` is a finite whole number.
//! * Enums in the form that serde gives them by default, and no `Option<Option<_>>`: JSON cannot tell `Some(None)` from `None`.
//! * Lists are arrays (`Vec`), because only those are kept as differences.
//!
//! Credentials are not in a record because no machine gets them: events are made of the types of
//! `ccm-cloud` and `ccm-objects`, which do not hold any, and the types that hold credentials cannot
//! be serialised.

mod anonymous;
mod blocks;
mod cut;
mod format;
mod lists;
mod page;
pub mod replay;
mod ring;
mod tape;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, marker::PhantomData, sync::Arc};

use ccm_runtime::{
    program::{Context, Program},
    records::Record,
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

pub use format::{FORMAT, Header};

use crate::machine::{Door, Machine};
use ring::Ring;

/// A machine that can be recorded and replayed.
pub trait Recorded: Machine + Serialize + DeserializeOwned {
    /// The name of the machine in its records: the program's name, or `PROGRAM/MACHINE` for a
    /// program with several machines.
    const NAME: &'static str;

    /// Returns the object that an event is about: its name, or `NAMESPACE/NAME` for a Service.
    /// Returns `None` for an event about the fleet.
    fn about(event: &Self::Event) -> Option<Cow<'_, str>>;

    /// Returns the object that an effect is about.
    fn effect_about(effect: &Self::Effect) -> Option<Cow<'_, str>>;

    /// Returns the memory of this object and of what concerns all objects, without the other
    /// objects.
    #[must_use]
    fn only(self, name: &str) -> Self;

    /// Returns the event without its content about other objects, if anything is left. Override it
    /// where events are about many objects, such as lists.
    fn only_event(event: Self::Event, name: &str) -> Option<Self::Event> {
        let is_kept = Self::about(&event).is_none_or(|object| object == name);
        is_kept.then_some(event)
    }

    /// Returns the words that an anonymous record keeps in addition to [`anonymous`]'s own: words
    /// that the machine compares with, such as keys of annotations, and that cannot be names.
    fn words() -> &'static [&'static str] {
        &[]
    }
}

/// The record of a machine. Clones are the same one.
pub struct Recorder<M> {
    ring: Arc<Mutex<Ring>>,
    machine: PhantomData<fn(M)>,
}

impl<M> Clone for Recorder<M> {
    fn clone(&self) -> Self {
        Self { ring: Arc::clone(&self.ring), machine: PhantomData }
    }
}

impl<M: Recorded> Recorder<M> {
    /// Creates a record of at most this many bytes.
    pub fn new(bytes: usize) -> Self {
        let ring = Arc::new(Mutex::new(Ring::new(M::NAME.to_owned(), bytes)));
        Self { ring, machine: PhantomData }
    }

    /// Returns the door to this machine, which is recorded here.
    pub fn door(&self, machine: M) -> Door<M> {
        Door::recorded(machine, self.clone())
    }
}

/// Returns the door to the machine of a program, with its record on the page `/record`. With
/// `--record-bytes=0` it does not keep a record.
pub fn door<M: Recorded, P: Program>(context: &Context<P>, machine: M) -> Door<M> {
    part(context, 1, machine)
}

/// Returns the door to one of several machines of a program, which share `--record-bytes`.
pub fn part<M: Recorded, P: Program>(context: &Context<P>, machines: usize, machine: M) -> Door<M> {
    let bytes = context.common.borrow().record_bytes / machines;
    if bytes == 0 {
        return Door::new(machine);
    }
    let recorder = Recorder::<M>::new(bytes);
    context.records.add(Arc::new(recorder.clone()) as Arc<dyn Record>);
    recorder.door(machine)
}
