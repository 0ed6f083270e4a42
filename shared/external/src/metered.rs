//! Makes the answers of a connection wait for memory. Each message waits twice: for its length
//! before it is read, and for its decoded size. A message that is too large is refused before it is
//! decoded.

use std::{
    pin::Pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use ccm_net::{AnswerMemory, Room};
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use tonic::{body::Body as Wire, transport};
use tower::{BoxError, Service};

use super::weight::{Answer, Budget, MOST, Refused, Scale};

/// The length of the header of each message: a flag, and the length of the message in 4 bytes.
const HEADER: usize = 5;

/// The memory for decoded answers of all connections of this process. A task that holds some of it
/// does not wait for other memory.
static DECODED: LazyLock<AnswerMemory> = LazyLock::new(|| AnswerMemory::new(MOST));

/// The memory of a decoded answer, stored in the extensions of a response. It is free again when
/// the response is dropped, or when the next message of a stream is requested.
type Held = Arc<Mutex<Option<Room>>>;

/// The connection to the provider. Clones share it.
#[derive(Clone)]
pub struct Channel {
    inner: transport::Channel,
    memory: AnswerMemory,
}

impl Channel {
    /// Creates the connection, whose answers take from the memory of the process.
    pub fn new(inner: transport::Channel) -> Self {
        Self { inner, memory: AnswerMemory::of_process() }
    }
}

impl Service<Request<Wire>> for Channel {
    type Response = Response<Metered<Wire>>;
    type Error = transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Wire>) -> Self::Future {
        let budget = request.extensions().get::<Budget>().cloned().unwrap_or_default();
        let messages = Messages::new(Answer::by_path(request.uri().path()), budget);
        let (answer, memory) = (self.inner.call(request), self.memory.clone());
        Box::pin(async move {
            let mut answer = answer.await?.map(|body| Metered::new(body, memory, messages));
            let held = Arc::clone(&answer.body().held);
            answer.extensions_mut().insert(held);
            Ok(answer)
        })
    }
}

/// The body of an answer.
pub struct Metered<B> {
    body: B,
    memory: AnswerMemory,
    messages: Messages,
    /// The room of the message that is being read.
    room: Option<Room>,
    /// The room of the message that was decoded.
    held: Held,
    /// The wait for room, and what was read before it.
    wait: Option<(BoxFuture<'static, Rooms>, Bytes)>,
}

/// The memory for a message that is being read, and for the decoded message.
type Rooms = (Option<Room>, Option<Room>);

impl<B> Metered<B> {
    fn new(body: B, memory: AnswerMemory, messages: Messages) -> Self {
        Self { body, memory, messages, room: None, held: Held::default(), wait: None }
    }
}

impl<B> Body for Metered<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some((wait, _)) = &mut this.wait {
                let (room, decoded) = ready!(wait.as_mut().poll(context));
                if room.is_some() {
                    this.room = room;
                }
                *this.held.lock() = decoded;
            }
            if let Some((_, data)) = this.wait.take() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if this.messages.is_between() {
                this.room = None;
                // The last message of a stream has been read by now, but the only message of an
                // answer may be converted after the end of the stream.
                if this.messages.streams() {
                    *this.held.lock() = None;
                }
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
            let Read { begun, decoded } = match this.messages.read(&data) {
                Ok(read) => read,
                Err(refused) => return Poll::Ready(Some(Err(refused.into()))),
            };
            if begun == 0 && decoded == 0 {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            // A reader that waits for the first memory does not hold any, and a reader that waits
            // for the second holds only the first.
            *this.held.lock() = None;
            if begun > 0 {
                this.room = None;
            }
            let memory = this.memory.clone();
            let wait = Box::pin(async move {
                let room = if begun > 0 { Some(memory.room(Some(begun)).await) } else { None };
                let decoded = u64::try_from(decoded).ok().filter(|decoded| *decoded > 0);
                match decoded {
                    Some(_) => (room, Some(DECODED.room(decoded).await)),
                    None => (room, None),
                }
            });
            this.wait = Some((wait, data));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.wait.is_none() && self.body.is_end_stream()
    }
}

/// Tracks where the messages of a body begin and end, and the memory that they take.
#[derive(Debug)]
struct Messages {
    answer: Option<Answer>,
    budget: Budget,
    /// The bytes of the next header that have been read.
    header: Vec<u8>,
    /// The number of bytes of the message that still follow.
    left: u64,
    /// The scale of the message.
    scale: Option<Scale>,
}

/// The messages in a part of a body.
#[derive(Debug, Default)]
struct Read {
    /// The length of the messages that begin in it.
    begun: u64,
    /// The size of the messages that end in it, when they are decoded.
    decoded: usize,
}

impl Messages {
    /// Creates the answer of a method, if it is known.
    fn new(answer: Option<Answer>, budget: Budget) -> Self {
        Self { answer, budget, header: Vec::new(), left: 0, scale: None }
    }

    /// Reads the next part of the body.
    fn read(&mut self, mut data: &[u8]) -> Result<Read, Refused> {
        let mut read = Read::default();
        while !data.is_empty() {
            let part = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
            let (part, rest) = data.split_at_checked(part).unwrap_or((data, &[]));
            if let Some(scale) = &mut self.scale {
                scale.read(part)?;
            }
            data = rest;
            self.left -= part.len() as u64;
            while self.left == 0 && self.header.len() < HEADER {
                if let Some(scale) = self.scale.take() {
                    read.decoded += scale.end()?;
                }
                let Some((first, rest)) = data.split_first() else { return Ok(read) };
                self.header.push(*first);
                data = rest;
            }
            if self.left == 0
                && let [_, length @ ..] = &*self.header
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                self.left = u32::from_be_bytes(length).into();
                read.begun += self.left;
                self.header.clear();
                let answer = self.answer.ok_or(Refused::Broken)?;
                self.scale = Some(Scale::new(answer, self.budget.clone(), self.left)?);
            }
        }
        if self.left == 0
            && let Some(scale) = self.scale.take()
        {
            read.decoded += scale.end()?;
        }
        Ok(read)
    }

    /// Returns true if no message has been read in part.
    fn is_between(&self) -> bool {
        self.left == 0 && self.header.is_empty()
    }

    /// Returns true if there may be several messages.
    fn streams(&self) -> bool {
        self.answer.is_some_and(|answer| answer.streams)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible, time::Duration};

    use http_body_util::BodyExt as _;
    use tokio::time::timeout;

    use super::*;

    /// Returns a message of at least two bytes, or an empty one, with numbers of an unknown field.
    fn message(length: usize) -> Vec<u8> {
        let size = u32::try_from(length).expect("short");
        let content = if length.is_multiple_of(2) { vec![] } else { vec![0x78, 0x80, 0] };
        let rest = [0x78, 1].repeat((length - content.len()) / 2);
        [&[0][..], &size.to_be_bytes(), &content, &rest].concat()
    }

    fn messages(path: &str) -> Messages {
        Messages::new(Answer::by_path(path), Budget::default())
    }

    const LIST: &str = "/quartet.cloud.v1.Instances/ListInstances";

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let body = [message(3), message(0), message(300), message(2)].concat();
        for size in [1, 2, 5, 6, 7, 100, body.len()] {
            let mut messages = messages(LIST);
            let read = body.chunks(size).map(|part| messages.read(part).expect("messages").begun);
            assert_eq!(read.sum::<u64>(), 305, "{size}");
            assert!(messages.is_between());
        }
        let mut messages = messages(LIST);
        assert_eq!(messages.read(&message(9)[..8]).expect("a message").begun, 9);
        assert!(!messages.is_between());
    }

    /// A body in parts.
    struct Parts(VecDeque<Bytes>);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_waits_for_room_and_the_body_is_as_sent() {
        let sent = [message(6 << 10), message(3 << 10), message(20)].concat();
        let parts = sent.chunks(1000).map(Bytes::copy_from_slice).collect();
        let memory = AnswerMemory::new(8 << 10);
        let mut body = Metered::new(Parts(parts), memory.clone(), messages(LIST));
        let first = body.frame().await.expect("data").expect("no error");
        assert_eq!(first.data_ref().map(Bytes::len), Some(1000));
        let limit = Duration::from_secs(1);
        assert!(timeout(limit, memory.room(Some(3 << 10))).await.is_err(), "it has its room");
        let rest = (&mut body).collect().await.expect("no error").to_bytes();
        assert_eq!(rest.len(), sent.len() - 1000);
        let other = timeout(limit, memory.room(Some(8 << 10))).await.expect("it is free again");
        drop(body);
        let mut body =
            Metered::new(Parts([Bytes::from(message(5))].into()), memory, messages(LIST));
        assert!(timeout(limit, body.frame()).await.is_err(), "there is no room");
        drop(other);
        assert_eq!(
            body.frame().await.expect("data").expect("no error").data_ref().unwrap().len(),
            10
        );
    }
}
