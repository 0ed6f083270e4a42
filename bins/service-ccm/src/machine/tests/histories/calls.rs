//! The cloud answers calls.

use ccm_cloud::{
    CloudError, ErrorKind, LoadBalancer, Loss, MemberChange, Progress, Unwanted, Wanted,
};
use ccm_objects::Shared as Name;

use super::{rules::Rules, world::World};
use crate::machine::{
    effect::{Ask, Question},
    event::{Answered, CallAnswer, Event},
};

/// The end of a call.
struct Fate {
    /// True if the cloud carries it out. A failed call may have been carried out.
    is_made: bool,
    error: Option<CloudError>,
}

impl World {
    pub(super) fn answer_ask(&mut self, ask: Ask) {
        let Ask { lane, name, uid, question, .. } = ask;
        let fails = self.fails() || self.trouble.is_some();
        let is_made = !fails || self.trouble.is_none() && self.random.one_in(2);
        let error = self.error().that_may_be_done();
        let error = self.trouble.clone().unwrap_or(error);
        if let Question::Ensure(wanted) = &question
            && fails
            && !is_made
            && self.breaks_off(wanted)
        {
            return;
        }
        let is_elsewhere = self.is_elsewhere();
        let fate = Fate { is_made, error: fails.then(|| error.clone()) };
        let answer = match question {
            Question::Ensure(wanted) if is_elsewhere => {
                CallAnswer::Ensure(Box::new(self.ensure_elsewhere(&wanted)))
            }
            Question::Ensure(wanted) => self.ensure(wanted, fate),
            Question::Members(_) if is_elsewhere => {
                CallAnswer::Members(Err(CloudError::new(ErrorKind::NotFound, "it is not here")))
            }
            Question::Members(change) => self.set_members(&uid, change, fate),
            Question::Delete(unwanted) => {
                let is_made = is_made && !is_elsewhere;
                let fails = fails || is_elsewhere;
                self.delete(&name, &unwanted, Fate { is_made, error: fails.then_some(error) })
            }
            Question::Preview(wanted) => {
                CallAnswer::Preview(wanted.front_end.digest, Ok(Vec::new()))
            }
        };
        self.rules.calls.answered(&name, &uid, progress(&answer));
        let answered = Answered { lane, name: Name::clone(&name), uid, answer };
        let requests = self.hear(Event::Answered(answered));
        match requests.is_empty() {
            true => self.done(lane, &name),
            false => self.look(lane, &name, false),
        }
    }

    fn ensure(&mut self, mut wanted: Wanted, fate: Fate) -> CallAnswer {
        let uid = wanted.front_end.owner.uid.clone();
        wanted.members = self.members(&uid, &wanted.members);
        let has_none = self.cloud.of(&uid).is_empty();
        let is_lost = has_none && self.cloud.hides(&uid);
        let made = fate.is_made.then(|| self.cloud.ensure(&wanted, self.now));
        let has_made = has_none && !self.cloud.of(&uid).is_empty();
        if has_made && is_lost && self.shows_address(&uid) {
            self.rules.replaced(&uid, self.now);
        }
        self.rules.ensured(&uid, &self.cloud);
        let own = self.cloud.of(&uid).into_iter();
        self.asked.extend(own.map(|id| (id, wanted.front_end.digest)));
        CallAnswer::Ensure(Box::new(fate.answer(made)))
    }

    fn set_members(&mut self, uid: &str, mut change: MemberChange, fate: Fate) -> CallAnswer {
        change.members = self.members(uid, &change.members);
        let made = fate.is_made.then(|| self.cloud.set_members(&change, self.now));
        let gone = || CloudError::new(ErrorKind::NotFound, "it is gone");
        CallAnswer::Members(fate.answer(made).and_then(|made| made.ok_or_else(gone)))
    }

    fn delete(&mut self, name: &Name, unwanted: &Unwanted, fate: Fate) -> CallAnswer {
        let unwanted = self.unwanted(unwanted);
        if fate.is_made {
            Rules::deleted(&unwanted, self.api.get(name).map(|it| &**it), &self.cloud);
        }
        let is_made = fate.is_made && !self.keeps(name);
        let made = is_made.then(|| self.cloud.delete(&unwanted, self.now));
        CallAnswer::Delete(fate.answer(made).map(|made| self.deleted(made)))
    }

    /// Answers as another cloud, which has none of the load balancers and does not replace them.
    fn ensure_elsewhere(&mut self, wanted: &Wanted) -> Result<Progress<LoadBalancer>, CloudError> {
        let uid = &wanted.front_end.owner.uid;
        if wanted.known.is_some() && !wanted.may_replace {
            let why = "it is not here".to_owned();
            return Ok(Progress::Lost(Loss { why, is_gone: true }));
        }
        if wanted.known.is_some() && self.shows_address(uid) && self.cloud.hides(uid) {
            self.rules.replaced(uid, self.now);
        }
        Err(CloudError::new(ErrorKind::Timeout, "another cloud").that_may_be_done())
    }
}

impl Fate {
    /// Returns the answer to a call of which the cloud has made this.
    fn answer<T>(self, made: Option<T>) -> Result<T, CloudError> {
        match (self.error, made) {
            (None, Some(made)) => Ok(made),
            (error, _) => {
                Err(error.unwrap_or_else(|| CloudError::new(ErrorKind::Unavailable, "no")))
            }
        }
    }
}

/// Returns true if the cloud has carried out the call, false if it works on it or has said
/// something else.
fn progress(answer: &CallAnswer) -> Result<bool, &CloudError> {
    const fn is_done<T>(answer: &Progress<T>) -> bool {
        matches!(answer, Progress::Done(_))
    }
    match answer {
        CallAnswer::Ensure(answer) => answer.as_ref().as_ref().map(is_done),
        CallAnswer::Members(answer) => answer.as_ref().map(is_done),
        CallAnswer::Delete(answer) => answer.as_ref().map(is_done),
        CallAnswer::Preview(_, answer) => answer.as_ref().map(|_| true),
    }
}
