//! The provider's description of itself.

use std::fmt;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    Capability, CloudError, ErrorKind, InstanceTraits, LoadBalancerTraits, ProviderId, RouteTraits,
};

use super::{
    MAX_BATCH, MAX_LOOKUP,
    convert::{load_balancers, malformed, routes, wants_from_wire},
    pages::lines,
    proto,
};

/// The checked answer of `Describe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub provider: String,
    pub schemes: Vec<String>,
    pub capabilities: Vec<String>,
    /// The identity of the cloud, if the provider reports it.
    pub identity: Option<String>,
    pub max_batch: usize,
    pub traits: InstanceTraits,
    pub load_balancers: LoadBalancerTraits,
    pub routes: RouteTraits,
    /// The capabilities of which the provider does not know whether it offers them.
    pub unknown: Vec<(String, CloudError)>,
}

impl Description {
    fn offers(&self, capability: Capability) -> bool {
        self.capabilities.iter().any(|name| name == capability.as_ref())
    }

    /// Returns true if this capability is offered. Fails if the provider does not know.
    pub fn offered(&self, capability: Capability) -> Result<bool, CloudError> {
        let unknown = self.unknown.iter().find(|(name, _)| name == capability.as_ref());
        match unknown {
            Some((_, error)) => Err(error.clone()),
            None => Ok(self.offers(capability)),
        }
    }
}

impl TryFrom<proto::DescribeResponse> for Description {
    type Error = CloudError;

    fn try_from(wire: proto::DescribeResponse) -> Result<Self, CloudError> {
        let provider = wire.provider();
        if provider.trim().is_empty() {
            return Err(malformed("the description does not name the provider"));
        }
        if let Some(scheme) = wire.schemes.iter().find(|scheme| !is_scheme(scheme)) {
            return Err(malformed(format!(
                "the provider {provider:?} claims {scheme:?}, which is not a provider ID scheme; expected lower-case letters, digits, +, - and ."
            )));
        }
        let max_batch = match usize::try_from(wire.max_batch()).unwrap_or(MAX_BATCH) {
            0 => MAX_BATCH,
            some => some.min(MAX_LOOKUP),
        };
        let traits = InstanceTraits {
            lists: wire.lists.unwrap_or(true),
            labels_only_add: wire.labels_only_add(),
            lists_for_lookups: max_batch > MAX_BATCH,
            wants: wants_from_wire(&wire.wants),
        };
        Ok(Self {
            provider: one_line(provider, LONGEST_LINE),
            identity: identity(wire.identity.as_deref()),
            schemes: wire.schemes,
            capabilities: lines(&wire.capabilities).collect(),
            max_batch,
            traits,
            load_balancers: load_balancers::traits_from_wire(wire.load_balancers),
            routes: routes::traits_from_wire(wire.routes),
            unknown: wire.unknown.into_iter().map(unknown).collect(),
        })
    }
}

/// Returns an empty text tells nothing.
fn identity(text: Option<&str>) -> Option<String> {
    text.map(|text| one_line(text.trim(), LONGEST_LINE)).filter(|text| !text.is_empty())
}

fn unknown(wire: proto::UnknownCapability) -> (String, CloudError) {
    let proto::UnknownCapability { name, error } = wire;
    let error = error.map(CloudError::from);
    let silent = || CloudError::new(ErrorKind::Unavailable, "the provider does not know yet");
    (one_line(&name.unwrap_or_default(), LONGEST_LINE), error.unwrap_or_else(silent))
}

fn is_scheme(text: &str) -> bool {
    ProviderId::parse(&format!("{text}://x")).is_ok_and(|id| id.scheme() == text)
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |words: &[String]| if words.is_empty() { "none".to_owned() } else { words.join(",") };
        write!(
            f,
            "{} (schemes {}, capabilities {}, identity {})",
            self.provider,
            list(&self.schemes),
            list(&self.capabilities),
            self.identity.as_deref().unwrap_or("unknown")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_one_line() {
        let text = |words: &str| format!("{words}\r\n\u{85}level=error");
        let unknown = proto::UnknownCapability { name: Some(text("routes")), error: None };
        let wire = proto::DescribeResponse {
            provider: Some(text("rogue")),
            capabilities: vec![text("instances")],
            identity: Some(text("one")),
            unknown: vec![unknown],
            ..Default::default()
        };
        let description = Description::try_from(wire).unwrap();
        let said = description.to_string() + &description.unknown[0].0;
        assert!(!said.contains(char::is_control), "{said:?}");
    }
}
