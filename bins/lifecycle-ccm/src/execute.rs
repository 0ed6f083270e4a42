//! Carries out what was decided: writes to the API server, and what came of them.

use std::sync::Arc;

use ccm_controller::writer::{self, Writer};
use ccm_kube::{ApiError, write::Patch};
use ccm_objects::Node;
use ccm_runtime::plans::Step;
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    policy::{
        Decision, Deletion,
        action::{APPROVED, Action, GONE, Marks, Write},
        shutdown,
    },
    settings::LifecycleSettings,
};

/// Why something was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    /// Something has changed since it was decided.
    #[error("{0}")]
    Superseded(&'static str),
    /// It was not written.
    #[error(transparent)]
    NotWritten(#[from] writer::Stopped),
}

impl Stopped {
    /// What it means for a deletion: a request that was answered with an error did
    /// nothing, but what became of one that was not answered is not known.
    pub(crate) fn outcome(&self) -> Deletion {
        match self.refusal() {
            None | Some(ApiError::Conflict) => Deletion::NotDone,
            Some(
                ApiError::Timeout
                | ApiError::Unavailable(_)
                | ApiError::Decode(_)
                | ApiError::Unexpected { .. },
            ) => Deletion::Uncertain,
            Some(_) => Deletion::Refused,
        }
    }

    /// What the API server answered, if it was asked.
    pub(crate) fn refusal(&self) -> Option<&ApiError> {
        match self {
            Self::NotWritten(writer::Stopped::Refused(error)) => Some(error),
            Self::NotWritten(writer::Stopped::Lost(_)) | Self::Superseded(_) => None,
        }
    }
}

/// A write as `/plan` shows it.
pub(crate) fn published(action: &Action) -> Step {
    let changes = match action.write {
        Write::Marks(Marks { end_approval: true, .. }) => vec![format!("{APPROVED} removed")],
        _ => Vec::new(),
    };
    let (step, reason) = (action.write.kind(), action.write.reason().to_owned());
    Step { step, changes, reason, held: None }
}

/// A deletion that is held, if this is one.
pub(crate) fn held(decision: &Decision) -> Option<Step> {
    let held = Some(decision.held()?);
    Some(Step { step: "delete", changes: Vec::new(), reason: GONE.to_owned(), held })
}

/// Writes nodes.
pub(crate) struct Executor {
    pub(crate) writer: Writer<Node>,
    pub(crate) settings: watch::Receiver<Arc<LifecycleSettings>>,
    /// Cancelled when nothing new is to be begun.
    pub(crate) closing: CancellationToken,
}

impl Executor {
    /// Carries out these actions, which were decided by these settings; each comes back
    /// with its result as soon as that is known.
    pub(crate) fn execute<'a>(
        &'a self,
        actions: Vec<Action>,
        decided_by: &'a Arc<LifecycleSettings>,
    ) -> impl Stream<Item = (Action, Result<(), Stopped>)> + Send + 'a {
        let writes = actions.into_iter().map(move |action| async move {
            let result = match &action.write {
                Write::Delete(_) => self.delete(&action.node, decided_by).await,
                Write::Marks(marks) => self.mark(&action.node, *marks).await,
            };
            (action, result)
        });
        stream::iter(writes).buffer_unordered(decided_by.concurrent_node_lifecycle_syncs)
    }

    /// Lowering the budget or ending the program also means the deletions that wait.
    async fn delete(&self, node: &Node, by: &Arc<LifecycleSettings>) -> Result<(), Stopped> {
        if self.closing.is_cancelled() {
            return Err(Stopped::Superseded("the program ends"));
        }
        if !Arc::ptr_eq(by, &self.settings.borrow()) {
            return Err(Stopped::Superseded("the settings have changed"));
        }
        Ok(self.writer.delete(node).await?)
    }

    async fn mark(&self, node: &Node, marks: Marks) -> Result<(), Stopped> {
        let mut patch = Patch::default();
        if let Some((step, _)) = marks.taint {
            patch = patch.with_spec("taints", &shutdown::apply(&node.taints, step));
        }
        if marks.end_approval {
            patch.annotations.insert(APPROVED.to_owned(), None);
        }
        self.writer.patch(node, &patch).await?;
        Ok(())
    }
}
