//! Answers over a connection wait for memory: each message when its length is known, before it is read.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use ccm_net::{AnswerMemory, Room};
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Body, Frame};
use tonic::{body::Body as Answer, transport};
use tower::Service;

/// The length of what precedes each message: a flag, and its length in 4 bytes.
const HEADER: usize = 5;

/// The connection to the provider. Clones share it.
#[derive(Clone)]
pub(super) struct Channel {
    inner: transport::Channel,
    memory: AnswerMemory,
}

impl Channel {
    /// The connection, whose answers take from the memory of the process.
    pub(super) fn new(inner: transport::Channel) -> Self {
        Self { inner, memory: AnswerMemory::of_process() }
    }
}

impl Service<Request<Answer>> for Channel {
    type Response = Response<Metered<Answer>>;
    type Error = transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Answer>) -> Self::Future {
        let (answer, memory) = (self.inner.call(request), self.memory.clone());
        Box::pin(async move { Ok(answer.await?.map(|body| Metered::new(body, memory))) })
    }
}

/// The body of an answer.
pub(super) struct Metered<B> {
    body: B,
    memory: AnswerMemory,
    messages: Messages,
    /// The room of the message that is being read.
    room: Option<Room>,
    /// The wait for room, and what was read before it.
    wait: Option<(BoxFuture<'static, Room>, Bytes)>,
}

impl<B> Metered<B> {
    fn new(body: B, memory: AnswerMemory) -> Self {
        Self { body, memory, messages: Messages::default(), room: None, wait: None }
    }
}

impl<B> fmt::Debug for Metered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered").finish_non_exhaustive()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Metered<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        loop {
            if let Some((wait, _)) = &mut this.wait {
                this.room = Some(ready!(wait.as_mut().poll(context)));
            }
            if let Some((_, data)) = this.wait.take() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if this.messages.is_between() {
                this.room = None;
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
            let begun = this.messages.read(&data);
            if begun == 0 {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            // Who waits for room has none.
            this.room = None;
            let memory = this.memory.clone();
            let wait = Box::pin(async move { memory.room(Some(begun)).await });
            this.wait = Some((wait, data));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.wait.is_none() && self.body.is_end_stream()
    }
}

/// Where the messages of a body begin and end.
#[derive(Debug, Default)]
struct Messages {
    /// The bytes of the next header that have been read.
    header: Vec<u8>,
    /// How many bytes of the message follow.
    left: u64,
}

impl Messages {
    /// Reads the next part of the body. Returns the length of the messages that begin in it.
    fn read(&mut self, mut data: &[u8]) -> u64 {
        let mut begun = 0;
        while !data.is_empty() {
            let part = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
            data = data.get(part..).unwrap_or_default();
            self.left -= part as u64;
            while self.left == 0 && self.header.len() < HEADER {
                let Some((first, rest)) = data.split_first() else { return begun };
                self.header.push(*first);
                data = rest;
            }
            if self.left == 0
                && let [_, length @ ..] = &*self.header
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                self.left = u32::from_be_bytes(length).into();
                begun += self.left;
                self.header.clear();
            }
        }
        begun
    }

    /// Returns true if no message has been read in part.
    fn is_between(&self) -> bool {
        self.left == 0 && self.header.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible, time::Duration};

    use http_body_util::BodyExt as _;
    use tokio::time::timeout;

    use super::*;

    fn message(length: usize) -> Vec<u8> {
        let size = u32::try_from(length).expect("short");
        [&[0][..], &size.to_be_bytes(), &vec![7; length]].concat()
    }

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let body = [message(3), message(0), message(300), message(1)].concat();
        for size in [1, 2, 5, 6, 7, 100, body.len()] {
            let mut messages = Messages::default();
            let begun: u64 = body.chunks(size).map(|part| messages.read(part)).sum();
            assert_eq!(begun, 304, "{size}");
            assert!(messages.is_between());
        }
        let mut messages = Messages::default();
        assert_eq!(messages.read(&message(9)[..8]), 9);
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
        let mut body = Metered::new(Parts(parts), memory.clone());
        let first = body.frame().await.expect("data").expect("no error");
        assert_eq!(first.data_ref().map(Bytes::len), Some(1000));
        let limit = Duration::from_secs(1);
        assert!(timeout(limit, memory.room(Some(3 << 10))).await.is_err(), "it has its room");
        let rest = body.collect().await.expect("no error").to_bytes();
        assert_eq!(rest.len(), sent.len() - 1000);
        let other = timeout(limit, memory.room(Some(8 << 10))).await.expect("it is free again");
        let mut body = Metered::new(Parts([Bytes::from(message(5))].into()), memory);
        assert!(timeout(limit, body.frame()).await.is_err(), "there is no room");
        drop(other);
        assert_eq!(
            body.frame().await.expect("data").expect("no error").data_ref().unwrap().len(),
            10
        );
    }
}
