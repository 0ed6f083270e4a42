//! Faults by request.

use std::time::Duration;

use ccm_cloud::{CloudError, Cure, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Refusal, fields::duration};
use crate::{
    cloud::Operation,
    faults::{Fault, FaultEffect, FaultId, FaultPlan, Trouble},
};

/// The effects that a request can ask for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum EffectName {
    Delay,
    Throttle,
    Error,
    Hang,
    EmptyList,
    WrongProject,
    LoseAnswer,
    Late,
    Break,
    Stick,
    Malformed,
    Overtake,
}

/// A fault to add.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FaultRequest {
    effect: EffectName,
    owners: Option<Vec<String>>,
    routes: Option<Vec<String>>,
    #[serde(default, deserialize_with = "duration")]
    delay: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    retry_after: Option<Duration>,
    kind: Option<ErrorKind>,
    message: Option<String>,
    #[serde(default)]
    person: bool,
    operation: Option<String>,
    times: Option<u64>,
    #[serde(default)]
    skip: u64,
    #[serde(default, deserialize_with = "duration")]
    lasting: Option<Duration>,
    probability: Option<f64>,
}

impl FaultRequest {
    /// Refuses a field that would have no effect.
    fn check(&self) -> Result<(), Refusal> {
        use EffectName::{
            Break, Delay, EmptyList, Error, Late, LoseAnswer, Malformed, Overtake, Stick, Throttle,
            WrongProject,
        };
        let effect = self.effect;
        let delays = matches!(effect, Delay | Late);
        let of_calls = matches!(effect, Delay | Throttle | EmptyList | WrongProject);
        let of_items = matches!(effect, LoseAnswer | Late | Break | Stick | Malformed | Overtake);
        let names_items = self.owners.is_some() || self.routes.is_some();
        if self.owners.is_some() && self.routes.is_some() {
            let what = "owners and routes are separate faults: add one for each";
            return Err(Refusal::invalid(what));
        }
        for (field, given, may, must) in [
            ("owners", self.owners.is_some(), !of_calls && effect != Overtake, false),
            ("routes", self.routes.is_some(), !of_calls, effect == Overtake),
            ("owners or routes", names_items, !of_calls, of_items),
            ("delay", self.delay.is_some(), delays, delays),
            ("retryAfter", self.retry_after.is_some(), effect == Throttle, false),
            ("kind", self.kind.is_some(), effect == Error, effect == Error),
            ("message", self.message.is_some(), effect == Error, false),
            ("person", self.person, effect == Break, false),
        ] {
            if given && !may {
                return Err(Refusal::invalid(format!("{field} has no meaning with this effect")));
            }
            if must && !given {
                return Err(Refusal::invalid(format!("this effect needs {field}")));
            }
        }
        let probability = self.probability.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&probability) {
            return Err(Refusal::invalid(format!("probability {probability} is not in 0 to 1")));
        }
        Ok(())
    }

    fn effect(&self) -> FaultEffect {
        let delay = self.delay.unwrap_or_default();
        let error = || {
            let kind = self.kind.unwrap_or(ErrorKind::Unavailable);
            CloudError::new(kind, self.message.as_deref().unwrap_or("a simulated fault"))
        };
        let cure = if self.person { Cure::Person } else { Cure::Ensure };
        let single = |trouble| match (&self.owners, &self.routes) {
            (_, Some(routes)) => FaultEffect::Routes(routes.clone(), trouble),
            (owners, None) => {
                FaultEffect::LoadBalancers(owners.clone().unwrap_or_default(), trouble)
            }
        };
        match (self.effect, self.owners.as_ref().or(self.routes.as_ref())) {
            (EffectName::Delay, _) => FaultEffect::Latency(delay),
            (EffectName::Throttle, _) => FaultEffect::Throttle { retry_after: self.retry_after },
            (EffectName::Error, None) => FaultEffect::Error(error()),
            (EffectName::Error, Some(_)) => single(Trouble::Fail(error())),
            (EffectName::Hang, None) => FaultEffect::Hang,
            (EffectName::Hang, Some(_)) => single(Trouble::Hang),
            (EffectName::EmptyList, _) => FaultEffect::EmptyList,
            (EffectName::WrongProject, _) => FaultEffect::WrongProject,
            (EffectName::LoseAnswer, _) => single(Trouble::LoseAnswer),
            (EffectName::Late, _) => single(Trouble::Late(delay)),
            (EffectName::Break, _) => single(Trouble::Break(cure)),
            (EffectName::Stick, _) => single(Trouble::Stick),
            (EffectName::Malformed, _) => single(Trouble::Malformed),
            (EffectName::Overtake, _) => single(Trouble::Overtake),
        }
    }

    fn fault(&self) -> Result<Fault, Refusal> {
        self.check()?;
        let mut fault = Fault::new(self.effect()).after(self.skip);
        if let Some(name) = &self.operation {
            let all = Operation::ALL;
            let names: Vec<_> = all.iter().map(|operation| operation.as_str()).collect();
            let found = all.into_iter().find(|operation| operation.as_str() == name);
            let unknown =
                || Refusal::invalid(format!("no operation {name:?}; one of {}", names.join(", ")));
            fault = fault.on(found.ok_or_else(unknown)?);
        }
        if let Some(times) = self.times {
            fault = fault.times(times);
        }
        if let Some(lasting) = self.lasting {
            fault = fault.lasting(lasting);
        }
        Ok(fault.with_probability(self.probability.unwrap_or(1.0)))
    }
}

/// The faults that were asked for, as they are shown.
#[derive(Default)]
pub(super) struct Faults(Vec<(FaultId, Value)>);

impl Faults {
    /// Adds a fault, which is shown as it was requested.
    pub(super) fn add(
        &mut self,
        plan: &FaultPlan,
        request: &FaultRequest,
        shown: Value,
    ) -> Result<Value, Refusal> {
        let id = plan.add(request.fault()?);
        self.0.push((id, shown));
        Ok(json!({"id": id.number()}))
    }

    /// Returns the faults that are still active.
    pub(super) fn list(&mut self, plan: &FaultPlan) -> Value {
        self.0.retain(|(id, _)| plan.is_active(*id));
        let shown = self.0.iter().map(|(id, what)| json!({"id": id.number(), "fault": what}));
        shown.collect()
    }

    /// Ends one.
    pub(super) fn end(&mut self, plan: &FaultPlan, id: &str) -> Result<Value, Refusal> {
        let found = self.0.iter().find(|(known, _)| known.number().to_string() == id);
        match found.filter(|(known, _)| plan.remove(*known)) {
            Some(_) => Ok(self.list(plan)),
            None => Err(Refusal::missing(format!("no fault {id} is active"))),
        }
    }

    /// Ends all.
    pub(super) fn clear(&mut self, plan: &FaultPlan) -> Value {
        plan.clear();
        self.list(plan)
    }
}
