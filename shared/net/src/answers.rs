//! Bounds the memory for answers that are being received, for all connections of a process
//! together.
//!
//! An answer reserves room for its whole length before it is read, and waits until it has that
//! room. Of the answers that are longer than all the room, only one at a time is read, beside the
//! shorter ones. An answer of unknown length reserves more room while it grows. If no room is left,
//! it continues as such a long answer. So an answer that has room only ever waits for its turn
//! among the long ones, and the one whose turn it is never waits.

use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which room is counted, in bytes.
const BLOCK: usize = 1 << 10;
/// The room that an answer of unknown length begins with, in bytes.
const BEGINNING: usize = 256 << 10;

static ALL: LazyLock<AnswerMemory> = LazyLock::new(|| AnswerMemory::new(AnswerMemory::LONGEST));

/// The memory for answers. Clones share it.
#[derive(Clone, Debug)]
pub struct AnswerMemory {
    blocks: Arc<Semaphore>,
    alone: Arc<Semaphore>,
    total: usize,
}

/// The room of one answer, which is free again when this is dropped.
#[derive(Debug)]
pub struct Room {
    memory: AnswerMemory,
    blocks: Option<OwnedSemaphorePermit>,
    alone: Option<OwnedSemaphorePermit>,
    /// The number of bytes that fit.
    size: usize,
}

impl AnswerMemory {
    /// The maximum length of an answer, in bytes. All answers of a process that are not read alone
    /// share as much room.
    pub const LONGEST: usize = 32 << 20;

    /// Creates memory of this size in bytes.
    pub fn new(total: usize) -> Self {
        let (blocks, alone) = (Semaphore::new(total / BLOCK), Semaphore::new(1));
        Self { blocks: Arc::new(blocks), alone: Arc::new(alone), total }
    }

    /// Returns the memory of all connections of this process.
    pub fn of_process() -> Self {
        ALL.clone()
    }

    /// Waits for room for an answer of this length, if it is known.
    pub async fn room(&self, length: Option<u64>) -> Room {
        let length =
            length.map_or(BEGINNING, |length| usize::try_from(length).unwrap_or(usize::MAX));
        let mut room = Room { memory: self.clone(), blocks: None, alone: None, size: 0 };
        if length > self.total {
            room.go_alone().await;
        } else {
            let count = blocks(length);
            // The semaphore is never closed.
            room.blocks = Arc::clone(&self.blocks).acquire_many_owned(count).await.ok();
            room.size = length;
        }
        room
    }
}

impl Room {
    /// Waits until the answer may have this length: either it gets the room, or its turn to be
    /// alone comes.
    pub async fn grow(&mut self, length: usize) {
        if length <= self.size || self.alone.is_some() {
            return;
        }
        let more = (length - self.size).max(self.size);
        match Arc::clone(&self.memory.blocks).try_acquire_many_owned(blocks(more)) {
            Ok(permit) => {
                self.size += more;
                match &mut self.blocks {
                    Some(blocks) => blocks.merge(permit),
                    blocks => *blocks = Some(permit),
                }
            }
            Err(_) => self.go_alone().await,
        }
    }

    /// Returns the number of bytes that fit.
    pub fn size(&self) -> usize {
        self.size
    }

    async fn go_alone(&mut self) {
        self.alone = Arc::clone(&self.memory.alone).acquire_owned().await.ok();
        self.size = usize::MAX;
    }
}

fn blocks(length: usize) -> u32 {
    u32::try_from(length.div_ceil(BLOCK)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const MIB: u64 = 1 << 20;

    async fn fits(memory: &AnswerMemory, length: Option<u64>) -> Option<Room> {
        timeout(Duration::from_secs(1), memory.room(length)).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn answers_wait_until_there_is_room_for_them() {
        let memory = AnswerMemory::new(8 << 20);
        let first = memory.room(Some(6 * MIB)).await;
        assert!(fits(&memory, Some(3 * MIB)).await.is_none());
        let second = fits(&memory, Some(2 * MIB)).await.expect("there is room");
        assert!(fits(&memory, Some(1)).await.is_none());
        drop(first);
        assert!(fits(&memory, Some(6 * MIB)).await.is_some());
        drop(second);
        assert!(fits(&memory, Some(8 * MIB)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn of_the_longest_answers_one_is_read_at_a_time() {
        let memory = AnswerMemory::new(8 << 20);
        let alone = memory.room(Some(8 * MIB + 1)).await;
        assert!(fits(&memory, Some(60 * MIB)).await.is_none());
        assert!(fits(&memory, Some(u64::MAX)).await.is_none());
        assert!(fits(&memory, Some(8 * MIB)).await.is_some(), "shorter ones do not wait for it");
        drop(alone);
        assert!(fits(&memory, Some(60 * MIB)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_grow_do_not_wait_for_each_other() {
        let memory = AnswerMemory::new(1 << 20);
        let mut rooms = Vec::new();
        for _ in 0..4 {
            rooms.push(fits(&memory, None).await.expect("it begins"));
        }
        assert!(fits(&memory, None).await.is_none());
        let mut last = rooms.pop().expect("four");
        let limit = Duration::from_secs(1);
        timeout(limit, last.grow(60 << 20)).await.expect("it goes on alone");
        let mut next = rooms.pop().expect("three");
        timeout(limit, next.grow(200 << 10)).await.expect("it has this room");
        assert!(timeout(limit, next.grow(60 << 20)).await.is_err(), "one at a time");
        drop(last);
        timeout(limit, next.grow(60 << 20)).await.expect("its turn");
        let mut third = rooms.pop().expect("two");
        timeout(limit, third.grow(500 << 10)).await.expect("the room of the first one is free");
    }
}
