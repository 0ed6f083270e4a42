//! Response bodies: a few shared byte chunks, or a stream.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body::{Body, Frame, SizeHint};

use super::audit::Entry;

/// The reason why a body ends early.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by a fault of the simulated API server")]
pub struct ConnectionReset;

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, ConnectionReset>> + Send>>;

enum Content {
    Pieces { left: VecDeque<Bytes>, bytes: u64 },
    Stream(Pieces),
}

/// The body of a response. Counts the sent bytes.
pub struct ResponseBody {
    content: Content,
    entry: Option<Arc<Entry>>,
}

impl ResponseBody {
    pub(super) fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let left: VecDeque<Bytes> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let bytes = left.iter().map(|piece| piece.len() as u64).sum();
        Self { content: Content::Pieces { left, bytes }, entry: None }
    }

    pub(super) fn stream(
        stream: impl Stream<Item = Result<Bytes, ConnectionReset>> + Send + 'static,
    ) -> Self {
        Self { content: Content::Stream(Box::pin(stream)), entry: None }
    }

    /// Counts the sent bytes in this record.
    pub(super) fn counted(mut self, entry: Arc<Entry>) -> Self {
        self.entry = Some(entry);
        self
    }

    /// Returns the whole body; `None` for streams.
    pub(super) fn whole(&self) -> Option<Vec<u8>> {
        match &self.content {
            Content::Pieces { left, .. } => {
                Some(left.iter().flat_map(|piece| piece.iter().copied()).collect())
            }
            Content::Stream(_) => None,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ConnectionReset;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionReset>>> {
        let this = self.get_mut();
        let piece = match &mut this.content {
            Content::Pieces { left, bytes } => Poll::Ready(left.pop_front().map(|piece| {
                *bytes -= piece.len() as u64;
                Ok(piece)
            })),
            Content::Stream(stream) => stream.poll_next_unpin(cx),
        };
        piece.map(|piece| {
            piece.map(|piece| {
                let piece = piece?;
                if let Some(entry) = &this.entry {
                    entry.sent(piece.len() as u64);
                }
                Ok(Frame::data(piece))
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Pieces { left, .. } if left.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Pieces { bytes, .. } => SizeHint::with_exact(*bytes),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}
