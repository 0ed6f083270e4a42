//! Random histories of a whole controller in the process of its test, and variants of it without
//! one of its protections: a rule that no variant breaks finds nothing.
//!
//! A controller brings its world, its rules `R`, the protections `W` that can be taken out, and
//! `play`: one history by its seed, which returns the broken rules.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use ccm_cloud::{Answers, Call, Cloud, CloudError, Instances, LoadBalancers, Routes};
use ccm_sim::cloud::SimCloud;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;

use crate::seeds::seeds;

/// The broken rules, and how. Clones share them.
#[derive(Clone)]
pub struct Broken<R>(Arc<Mutex<Vec<(R, String)>>>);

impl<R> Default for Broken<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R> Broken<R> {
    /// This rule is broken, in this way. The same text counts once.
    pub fn add(&self, rule: R, how: String) {
        let mut all = self.0.lock();
        if !all.iter().any(|(_, known)| *known == how) {
            all.push((rule, how));
        }
    }

    /// Returns true if any rule is broken since the last call of [`Broken::take`].
    pub fn is_broken(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// All since the last call.
    pub fn take(&self) -> Vec<(R, String)> {
        std::mem::take(&mut self.0.lock())
    }
}

/// The differences from the program as it is shipped.
#[derive(Clone, Copy, Debug)]
pub struct Variant<W> {
    /// Other settings.
    pub arguments: &'static [&'static str],
    /// A protection that is taken out.
    pub without: Option<W>,
    /// True if a leader learns nothing from the last one.
    pub forgets: bool,
}

impl<W> Default for Variant<W> {
    fn default() -> Self {
        Self::with(&[])
    }
}

impl<W> Variant<W> {
    /// A protection that other settings take out.
    pub const fn with(arguments: &'static [&'static str]) -> Self {
        Self { arguments, without: None, forgets: false }
    }

    /// A protection that a layer between the program and the cloud takes out.
    pub fn without(without: W) -> Self {
        Self { without: Some(without), ..Self::with(&[]) }
    }

    /// A program whose leaders learn nothing from the last one.
    pub fn forgetful() -> Self {
        Self { forgets: true, ..Self::with(&[]) }
    }
}

/// The events of all histories of this process.
static EVENTS: AtomicUsize = AtomicUsize::new(0);

/// This many events of a history were played.
pub fn played(events: usize) {
    EVENTS.fetch_add(events, Ordering::Relaxed);
}

/// Plays histories of the program as it is; they break no rule. Prints how many events that were.
pub async fn none_breaks_a_rule<R: Debug, W>(
    histories: u64,
    play: impl AsyncFn(u64, Variant<W>) -> Vec<(R, String)>,
) {
    let (seeds, before) = (seeds(histories), EVENTS.load(Ordering::Relaxed));
    let (mut failed, number) = (Vec::new(), seeds.end - seeds.start);
    for seed in seeds {
        let broken = play(seed, Variant::default()).await;
        if !broken.is_empty() {
            eprintln!("history {seed}: {broken:#?}");
            failed.push(seed);
        }
    }
    let events = EVENTS.load(Ordering::Relaxed) - before;
    eprintln!("{number} histories, {events} events: {} broken", failed.len());
    assert!(failed.is_empty(), "histories {failed:?} break rules");
}

/// Plays histories of a variant until this rule is broken.
pub async fn is_found<R: Debug + PartialEq, W: Copy>(
    histories: u64,
    variant: Variant<W>,
    by: R,
    play: impl AsyncFn(u64, Variant<W>) -> Vec<(R, String)>,
) {
    for seed in 0..histories {
        let broken = play(seed, variant).await;
        if let Some((_, how)) = broken.iter().find(|(rule, _)| *rule == by) {
            eprintln!("history {seed}: {how}");
            return;
        }
    }
    panic!("{histories} histories, and no rule {by:?} is broken");
}

/// A test for each variant: of the histories that `play` plays, one breaks the rule.
#[macro_export]
macro_rules! variants {
    ($histories:expr, $play:path; $(fn $name:ident: $variant:expr => $rule:expr,)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            $crate::variants::is_found($histories, $variant, $rule, $play).await;
        }
    )*};
}

/// The simulated cloud with a layer before one of its capabilities.
pub struct Layered {
    cloud: SimCloud,
    layer: Layer,
}

/// The capability that a layer stands before.
pub enum Layer {
    /// Load balancers.
    LoadBalancers(Arc<dyn LoadBalancers>),
    /// Routes.
    Routes(Arc<dyn Routes>),
}

impl Layered {
    /// This cloud with this layer.
    pub fn new(cloud: &SimCloud, layer: Layer) -> Self {
        Self { cloud: cloud.clone(), layer }
    }
}

#[async_trait]
impl Cloud for Layered {
    fn name(&self) -> &str {
        self.cloud.name()
    }

    fn schemes(&self) -> Vec<String> {
        self.cloud.schemes()
    }

    fn identity(&self) -> Option<String> {
        self.cloud.identity()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        self.cloud.instances()
    }

    fn load_balancers(&self) -> Result<Option<Arc<dyn LoadBalancers>>, CloudError> {
        let offered = self.cloud.load_balancers()?;
        Ok(offered.map(|below| match &self.layer {
            Layer::LoadBalancers(layer) => Arc::clone(layer),
            Layer::Routes(_) => below,
        }))
    }

    fn routes(&self) -> Result<Option<Arc<dyn Routes>>, CloudError> {
        let offered = self.cloud.routes()?;
        Ok(offered.map(|below| match &self.layer {
            Layer::Routes(layer) => Arc::clone(layer),
            Layer::LoadBalancers(_) => below,
        }))
    }

    async fn health(&self, call: Call) -> Result<(), CloudError> {
        self.cloud.health(call).await
    }

    async fn changed(&self) {
        self.cloud.changed().await;
    }
}

/// The answers of a call with other items than it was made with: they arrive together.
pub fn together<'a, T: Send + 'a>(
    answers: impl Future<Output = Vec<(usize, Result<T, CloudError>)>> + Send + 'a,
) -> Answers<'a, T> {
    stream::once(answers).flat_map(stream::iter).boxed()
}
