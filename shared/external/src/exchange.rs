//! A call whose items are answered one by one, in any order.

use std::{borrow::Cow, collections::BTreeSet, ops::Range};

use ccm_cloud::{Call, CallClass, CloudError};
use futures::channel::mpsc::UnboundedSender;
use tonic::{Response, Status, Streaming};

use super::{
    answers::next,
    convert::malformed,
    halves::Halves,
    metered::Channel,
    rpc::{Terms, Wire},
    weight::Budget,
};

/// The number of concurrent parts of a large call.
pub const PARTS_AT_ONCE: usize = 4;
/// The size of the items in one part, in bytes: gRPC servers take 4 MiB by default.
pub const MAX_PART: usize = 2 << 20;

/// A message of a stream of answers.
pub trait Item {
    /// The answer about one item of the request.
    type Answer;

    /// The part of the request that reading the answer needs.
    type Context;

    /// The subject of the answers, for messages.
    const WHAT: &str;

    /// Returns the index of the item in the request, and by what it is known.
    fn about(&self) -> (Option<u32>, Cow<'_, str>);

    /// Returns the size in bytes of the part of the answer that is not kept, because the request
    /// has it as well.
    fn shared(_: &Self::Context) -> usize {
        0
    }

    /// Returns the answer.
    fn answer(self, context: &Self::Context) -> Result<Self::Answer, CloudError>;
}

/// The items of a call, and the channel for the answers.
pub struct Part<I: Item> {
    /// The indexes of the items in the whole call.
    pub places: Vec<usize>,
    /// The expected [`Item::about`] of each item, and its context.
    pub asked: Vec<(String, I::Context)>,
    pub sender: UnboundedSender<(usize, Result<I::Answer, CloudError>)>,
    /// Counts the memory of all answers of the call.
    pub budget: Budget,
}

impl<I: Item> Part<I> {
    fn send(&self, place: usize, answer: Result<I::Answer, CloudError>) {
        if let Some(place) = self.places.get(place) {
            // The receiver is gone and needs no answer.
            self.sender.unbounded_send((*place, answer)).ok();
        }
    }
}

/// Sends some items and forwards each answer as it arrives. What has no answer at the end gets
/// the error of the call; items of a request that is refused as a whole are sent again in halves.
/// `send` gets the places of the items in `part`.
pub async fn exchange<I, F>(
    wire: &Wire,
    part: Part<I>,
    class: CallClass,
    call: Call,
    send: impl Fn(Vec<usize>, Channel, Terms) -> F,
) where
    I: Item,
    F: Future<Output = Result<Response<Streaming<I>>, Status>>,
{
    let mut halves = Halves::new(part.asked.len());
    while let Some(places) = halves.next() {
        let mut left: BTreeSet<usize> = (0..places.len()).collect();
        let request = |channel, terms| send(places.clone(), channel, terms);
        let failed = answers(wire, &part, &places, &mut left, class, call, request).await;
        let left = left.into_iter().filter_map(|at| places.get(at).copied()).collect();
        for (place, error) in halves.failed(left, failed) {
            part.send(place, Err(error));
        }
    }
}

/// Forwards answers about these items of the part and removes their indexes in the request from
/// `left`. Returns the error for the rest.
async fn answers<I, F>(
    wire: &Wire,
    part: &Part<I>,
    places: &[usize],
    left: &mut BTreeSet<usize>,
    class: CallClass,
    call: Call,
    send: impl FnOnce(Channel, Terms) -> F,
) -> CloudError
where
    I: Item,
    F: Future<Output = Result<Response<Streaming<I>>, Status>>,
{
    let open = match wire.open(class, call, &part.budget).await {
        Ok(open) => open,
        Err(error) => return error,
    };
    let answer = open.hear(send(wire.connection.channel(), open.terms.clone())).await;
    let mut items = match answer {
        Ok(items) => items.into_inner(),
        Err(error) => {
            open.close_batch(&[], left.len(), &error);
            return error;
        }
    };
    let mut results = Vec::new();
    let end = loop {
        let item = match open.hear(items.message()).await {
            Ok(Some(item)) => item,
            Ok(None) => break unanswered(class, I::WHAT),
            Err(error) => break error,
        };
        let (place, answered) = item.about();
        let place = match next(place, places.len(), left) {
            Ok(place) => place,
            Err(error) => break left_open(class, error),
        };
        let Some(place) = places.get(place).copied() else { continue };
        let Some((asked, context)) = part.asked.get(place) else { continue };
        let answer = match answered {
            answered if answered == *asked => item.answer(context),
            answered => Err(left_open(class, about_another(I::WHAT, asked, &answered))),
        };
        part.budget.give_back(I::shared(context));
        results.push(answer.as_ref().err().cloned());
        part.send(place, answer);
    };
    open.close_batch(&results, left.len(), &end);
    end
}

/// Returns the error for an item without an answer at the end of the provider's stream.
fn unanswered(class: CallClass, what: &str) -> CloudError {
    let what = format!("the provider gave no answer about this {what}");
    left_open(class, malformed(what))
}

/// Marks the error of a write, which may have been executed.
fn left_open(class: CallClass, error: CloudError) -> CloudError {
    if class.write { error.that_may_be_done() } else { error }
}

fn about_another(what: &str, asked: &str, answered: &str) -> CloudError {
    malformed(format!("asked about the {what} {asked:?}, the provider answered about {answered:?}"))
}

/// Splits items of these sizes, in bytes, into parts of at most `most` items and [`MAX_PART`]
/// bytes.
pub fn split_by_size(sizes: impl IntoIterator<Item = usize>, most: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut size = 0;
    for (place, more) in sizes.into_iter().enumerate() {
        match parts.last_mut().filter(|part| part.len() < most && size + more <= MAX_PART) {
            Some(part) => part.end = place + 1,
            None => {
                size = 0;
                parts.push(place..place + 1);
            }
        }
        size += more;
    }
    parts
}
