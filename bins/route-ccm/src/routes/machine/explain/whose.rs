//! Explains the routes of a destination that do not belong to a node.

use ccm_cloud::{CloudError, ErrorKind, Route};
use ccm_runtime::explain::{Explanation, ObjectState};
use ipnet::IpNet;

use super::{About, Machine};
use crate::routes::{machine::listing::Listing, plan::Title};

impl Machine {
    /// Returns the routes of these destinations, and whose they are.
    pub(super) fn titles<'a>(
        &self,
        destinations: &[IpNet],
        about: &'a About<'_>,
    ) -> Vec<(&'a Route, Title)> {
        let routes = destinations.iter().flat_map(|destination| about.table.to(*destination));
        let view = self.view(&about.asked.pass, 0);
        view.map(|view| self.planner.titles(about.now, &view, routes)).unwrap_or_default()
    }

    /// Returns a destination without a node and without a planned change.
    pub(super) fn of_nobody(
        &self,
        destination: IpNet,
        titles: &[(&Route, Title)],
        about: &About<'_>,
    ) -> Explanation {
        let seen = self.listing.known_by(about.now);
        let titles = || titles.iter().map(|(_, title)| title);
        let foreign = titles().find(|title| matches!(title, Title::Foreign(_)));
        let open = titles().find(|title| matches!(title, Title::Open(_)));
        match foreign.or(open).or(titles().next()) {
            Some(Title::Foreign(why)) => Explanation::new(
                ObjectState::Foreign,
                format!("the route belongs to another owner and is never touched: {why}"),
                "nothing has to be done; if it is not needed, remove it in the cloud",
            ),
            Some(Title::Open(why)) => Explanation::new(
                ObjectState::Working,
                why,
                "wait: if the cloud says twice, at least a minute apart, that its target does not exist, the route is deleted",
            ),
            Some(Title::Ours(why)) => Explanation::fine(format!(
                "the route belongs to this cluster ({why}) and does not change"
            )),
            None if let Some(line) = self.listing.unreadable(destination) => {
                let cause = format!("its entry in the cloud's list cannot be read: {line}");
                Explanation::of_error(&CloudError::new(ErrorKind::Malformed, line), cause)
            }
            None => Explanation::new(
                ObjectState::Unknown,
                format!("{destination} has no route, and no node has this pod CIDR, by {seen}"),
                "check the CIDR; a node is explained by kind=Node&name=NAME",
            ),
        }
    }
}

/// Returns the routes of these destinations, in lines.
pub(super) fn there(
    listing: &Listing,
    destinations: &[IpNet],
    titles: &[(&Route, Title)],
) -> Vec<String> {
    let none = |destination: IpNet| match listing.unreadable(destination) {
        Some(line) => format!("an entry that cannot be read: {line}"),
        None => format!("no route of {destination}"),
    };
    let of_one = |destination: &IpNet| {
        let routes = titles.iter().filter(|(route, _)| route.destination.trunc() == *destination);
        let lines: Vec<String> =
            routes.map(|(route, title)| line(*destination, route, title)).collect();
        match lines.is_empty() {
            true => vec![none(*destination)],
            false => lines,
        }
    };
    destinations.iter().flat_map(of_one).collect()
}

fn line(destination: IpNet, route: &Route, title: &Title) -> String {
    let target = route.target.as_ref().map_or("nothing".to_owned(), ToString::to_string);
    let title = match title {
        Title::Ours(why) => format!("this cluster's: {why}"),
        Title::Open(why) => format!("not known whose: {why}"),
        Title::Foreign(why) => format!("another owner's: {why}"),
    };
    let defect = route.defect.as_ref().map(|defect| format!("; no traffic: {defect}"));
    format!("route of {destination} to {target}, {title}{}", defect.unwrap_or_default())
}
