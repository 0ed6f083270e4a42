//! Finds the cloud's services in the catalog that comes with a token.

use std::collections::BTreeSet;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};
use serde::Deserialize;
use serde_json::Value;

use crate::{api::Service, config::Interface, text::MAX_VALUE};

/// The endpoints, in the catalog's order.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    endpoints: Vec<(Service, Endpoint)>,
    /// The types of all services, those that are not used here included.
    types: BTreeSet<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Endpoint {
    interface: String,
    region: Option<String>,
    region_id: Option<String>,
    url: String,
}

#[derive(Deserialize)]
struct WireEntry {
    r#type: String,
    endpoints: Vec<Value>,
}

impl Catalog {
    /// Reads the entries that can be read; others are of no service of ours.
    pub fn read(entries: Vec<Value>) -> Self {
        let (mut endpoints, mut types) = (Vec::new(), BTreeSet::new());
        for entry in entries {
            let Ok(entry) = serde_json::from_value::<WireEntry>(entry) else { continue };
            types.insert(one_line(&entry.r#type, MAX_VALUE));
            let Ok(service) = entry.r#type.parse() else { continue };
            let readable = entry.endpoints.into_iter().flat_map(serde_json::from_value);
            endpoints.extend(readable.map(|endpoint| (service, endpoint)));
        }
        Self { endpoints, types }
    }

    /// Returns the first endpoint of the service that is meant for `interface` and lies in
    /// `region`, if one is given.
    pub fn url(
        &self,
        service: Service,
        interface: Interface,
        region: Option<&str>,
    ) -> Result<&str, CloudError> {
        self.endpoint(service, interface, region)
            .map(|endpoint| endpoint.url.as_str())
            .ok_or_else(|| self.missing(service, interface, region))
    }

    /// Returns true if the service has an endpoint in `region`, if one is given, for whatever
    /// interface.
    pub fn has(&self, service: Service, region: Option<&str>) -> bool {
        self.endpoints(service).any(|endpoint| region.is_none_or(|region| endpoint.lies_in(region)))
    }

    /// Returns true if the first endpoint of the service for `interface` lies in `region`.
    pub fn lies_in(&self, service: Service, interface: Interface, region: &str) -> bool {
        self.endpoint(service, interface, None).is_some_and(|endpoint| endpoint.lies_in(region))
    }

    /// Returns the region of that endpoint, if it has one.
    pub fn region(&self, service: Service, interface: Interface) -> Option<&str> {
        self.endpoint(service, interface, None)?.region()
    }

    /// Says that it has no such service in `region`, if one is given, and what it has instead.
    pub fn absence(&self, service: Service, region: Option<&str>) -> String {
        let place = region.map_or_else(String::new, |region| format!(" of region {region}"));
        let regions: BTreeSet<&str> =
            self.endpoints(service).filter_map(Endpoint::region).collect();
        let has = match regions.is_empty() {
            true => self.types.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
            false => format!("one in {}", Vec::from_iter(regions).join(", ")),
        };
        format!("the catalog{place} has no {} endpoint (it has {has})", service.name())
    }

    fn endpoint(
        &self,
        service: Service,
        interface: Interface,
        region: Option<&str>,
    ) -> Option<&Endpoint> {
        self.endpoints(service).find(|endpoint| {
            endpoint.is_for(interface) && region.is_none_or(|region| endpoint.lies_in(region))
        })
    }

    fn endpoints(&self, service: Service) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.iter().filter(move |(of, _)| *of == service).map(|(_, endpoint)| endpoint)
    }

    fn missing(&self, service: Service, interface: Interface, region: Option<&str>) -> CloudError {
        let place = region.map_or_else(String::new, |region| format!(" in region {region:?}"));
        let (name, interface) = (service.name(), <&str>::from(interface));
        let wanted = format!("no {name} endpoint for interface {interface}{place}");
        let there: BTreeSet<String> = self
            .endpoints(service)
            .map(|endpoint| {
                let region = endpoint.region().unwrap_or_default();
                format!("{} in {region:?}", endpoint.interface)
            })
            .collect();
        let there = match (there.is_empty(), self.endpoints.is_empty()) {
            (_, true) => "it is empty, as for a token without a project".to_owned(),
            (true, false) => "it has no endpoint at all".to_owned(),
            (false, false) => Vec::from_iter(there).join(", "),
        };
        CloudError::new(
            ErrorKind::Invalid,
            format!(
                "the catalog has {wanted}; set region and os-endpoint-type to one of its endpoints: {there}"
            ),
        )
    }
}

impl Endpoint {
    fn is_for(&self, interface: Interface) -> bool {
        self.interface.strip_suffix("URL").unwrap_or(&self.interface) == <&str>::from(interface)
    }

    fn region(&self) -> Option<&str> {
        self.region_id.as_deref().or(self.region.as_deref())
    }

    fn lies_in(&self, region: &str) -> bool {
        [&self.region, &self.region_id].into_iter().any(|own| own.as_deref() == Some(region))
    }
}

#[cfg(test)]
mod tests;
