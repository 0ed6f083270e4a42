use std::time::Duration;

use async_trait::async_trait;
use ccm_cloud::{CloudError, ErrorKind, Fleet, Instances, Lookup, NodeIdentity};

use super::*;

/// Answers calls with up to this many nodes; larger ones fail as a whole.
struct Small {
    most: usize,
    error: ErrorKind,
}

#[async_trait]
impl Instances for Small {
    async fn lookup(&self, nodes: &[NodeIdentity], _: Detail, _: Call) -> Vec<LookupResult> {
        let answer = match nodes.len() <= self.most {
            true => Ok(Lookup::NotOurs("small".to_owned())),
            false => Err(CloudError::new(self.error, "too many")),
        };
        vec![answer; nodes.len()]
    }

    async fn list(&self, _: Call) -> Result<Fleet, CloudError> {
        Ok(Fleet::default())
    }
}

struct FakeCloud(Arc<dyn Instances>);

#[async_trait]
impl Cloud for FakeCloud {
    fn name(&self) -> &'static str {
        "small"
    }

    fn schemes(&self) -> Vec<String> {
        vec!["sim".to_owned()]
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Ok(Some(Arc::clone(&self.0)))
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }
}

fn lookups(most: usize, error: ErrorKind) -> SizedLookups {
    SizedLookups::new(Arc::new(FakeCloud(Arc::new(Small { most, error }))), 64)
}

/// Asks about this many nodes. Returns how many were answered, if only by an error, and how many
/// must be asked about again.
async fn ask(lookups: &SizedLookups, count: usize) -> (usize, usize, usize) {
    let node = Arc::new(Node::default());
    let nodes: Vec<_> = (0..count).map(|_| Arc::clone(&node)).collect();
    let (mut good, mut bad) = (0, 0);
    let call = Call::routine(Duration::from_secs(30));
    let count = |_, answer: LookupResult| if answer.is_ok() { good += 1 } else { bad += 1 };
    let again = lookups.ask(&nodes, Detail::Presence, call, count).await;
    assert!(again.iter().all(|(place, answer)| *place < nodes.len() && answer.is_err()));
    (good, bad, again.len())
}

#[tokio::test]
async fn nodes_of_a_call_that_was_too_large_come_back_and_the_next_calls_are_smaller() {
    let lookups = lookups(8, ErrorKind::Invalid);
    assert_eq!((lookups.size(), ask(&lookups, 64).await), (64, (0, 0, 64)));
    assert_eq!((lookups.size(), ask(&lookups, 8).await), (8, (8, 0, 0)));
    assert_eq!((lookups.size(), ask(&lookups, 16).await), (16, (0, 0, 16)));
    assert_eq!(lookups.size(), 2);
}

#[tokio::test]
async fn the_error_of_a_single_node_is_its_answer() {
    let lookups = lookups(0, ErrorKind::Timeout);
    assert_eq!((ask(&lookups, 1).await, lookups.size()), ((0, 1, 0), 64));
}

#[tokio::test]
async fn a_refused_connection_shows_nothing_about_the_size() {
    let lookups = lookups(0, ErrorKind::Unavailable);
    assert_eq!((ask(&lookups, 64).await, lookups.size()), ((0, 64, 0), 64));
}

/// Answers each call with these results.
struct Scripted(Vec<LookupResult>);

#[async_trait]
impl Instances for Scripted {
    async fn lookup(&self, _: &[NodeIdentity], _: Detail, _: Call) -> Vec<LookupResult> {
        self.0.clone()
    }

    async fn list(&self, _: Call) -> Result<Fleet, CloudError> {
        Ok(Fleet::default())
    }
}

#[tokio::test]
async fn only_answers_and_late_errors_show_something_about_the_size() {
    let ok = || Ok(Lookup::NotOurs("odd".to_owned()));
    let error = |kind| Err(CloudError::new(kind, "odd"));
    let (late, refused) = (error(ErrorKind::Timeout), error(ErrorKind::Unavailable));
    for (answers, delivered, size) in [
        (vec![], (0, 0, 0), 64),
        (vec![refused.clone(); 3], (0, 3, 0), 64),
        (vec![ok(), refused.clone()], (1, 1, 0), 64),
        (vec![ok(), late.clone(), error(ErrorKind::Invalid)], (1, 0, 2), 1),
        (vec![refused, late], (0, 2, 0), 64),
        (vec![error(ErrorKind::Malformed)], (0, 1, 0), 64),
    ] {
        let lookups =
            SizedLookups::new(Arc::new(FakeCloud(Arc::new(Scripted(answers.clone())))), 64);
        let got = ask(&lookups, answers.len()).await;
        assert_eq!((got, lookups.size()), (delivered, size), "{answers:?}");
    }
}
