//! Bytes, compressed block by block.
//!
//! Each block is compressed separately once it is full: a program with few events does not hold a
//! compressor, and a reader can begin at any block.

use std::{
    collections::VecDeque,
    io::{self, Cursor, Read, Write as _},
    sync::Arc,
};

use flate2::{Compression, read::DeflateDecoder, write::DeflateEncoder};

/// The bytes of a block before it is compressed: twice the distance over which the compressor finds repetitions.
pub(super) const BLOCK: usize = 64 * 1024;
/// The level of compression, from 1 to 9. With 1 a block takes a fifth less time, and a record
/// holds a quarter less. With 6 a block takes two and a half times as long, and a record holds a
/// fifth more.
const LEVEL: u32 = 4;
/// The memory that the compressor takes while it works, including the block that it makes.
pub(super) const WORK: usize = 400 * 1024;
/// The most memory that a block takes beside its bytes: its place in a list, its counters, and the
/// unused part at its end.
pub(super) const OVERHEAD: usize = 64;

/// A compressed block. Readers share it.
pub(super) type Block = Arc<[u8]>;

/// Compresses a block.
pub(super) fn pack(raw: &[u8]) -> io::Result<Block> {
    let room = Vec::with_capacity(raw.len() / 4);
    let mut encoder = DeflateEncoder::new(room, Compression::new(LEVEL));
    encoder.write_all(raw)?;
    Ok(encoder.finish()?.into())
}

/// Blocks and, after them, bytes that are not compressed yet, read as one text.
#[derive(Default)]
pub(super) struct Unpacked {
    blocks: VecDeque<BlockPart>,
    current: Cursor<Vec<u8>>,
}

enum BlockPart {
    Packed(Block),
    Plain(Vec<u8>),
}

impl Unpacked {
    pub(super) fn add_block(&mut self, block: &Block) {
        self.blocks.push_back(BlockPart::Packed(Arc::clone(block)));
    }

    pub(super) fn add(&mut self, plain: Vec<u8>) {
        self.blocks.push_back(BlockPart::Plain(plain));
    }
}

impl Read for Unpacked {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            let mut plain = std::mem::take(&mut self.current).into_inner();
            match self.blocks.pop_front() {
                None => return Ok(0),
                Some(BlockPart::Plain(text)) => plain = text,
                Some(BlockPart::Packed(block)) => {
                    plain.clear();
                    DeflateDecoder::new(&*block).read_to_end(&mut plain)?;
                }
            }
            self.current = Cursor::new(plain);
        }
    }
}
