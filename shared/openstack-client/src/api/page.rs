//! Reads paginated collections of Nova, Neutron and Octavia.

use std::{borrow::Cow, collections::BTreeMap};

use ccm_cloud::{Call, CloudError, ErrorKind};
use serde_json::{Value, value::RawValue};

use super::{
    Answer, Api, Memory, Request, Service,
    bounded::{Entries, LONGEST_ENTRY, MAX_ENTRIES, leads_on, members_of},
};
use crate::text;

/// The maximum number of pages, against a service with an endless list.
const MAX_PAGES: usize = 1_000;

/// A collection.
#[derive(Clone, Copy, Debug)]
pub struct Collection<'a> {
    /// The service.
    pub service: Service,
    /// The name of the request in metrics.
    pub operation: &'static str,
    /// The path with its query, without a marker.
    pub path: &'a str,
    /// The member of the response with the entries.
    pub key: &'static str,
}

/// The result of reading a collection.
#[derive(Clone, Debug)]
pub struct PagesRead {
    /// The request ID of the last page.
    pub request_id: Option<String>,
    /// The number of pages.
    pub pages: usize,
    /// True if there was no further page.
    pub whole: bool,
}

impl Collection<'_> {
    /// Passes each entry of all pages to `take`. Fails if the entries take too much of the memory.
    pub async fn entries(
        &self,
        api: &dyn Api,
        memory: &Memory,
        call: Call,
        mut take: impl FnMut(&str) + Send,
    ) -> Result<PagesRead, CloudError> {
        let take = |entry: &str| {
            memory.take_entry(entry)?;
            take(entry);
            id_of(entry)
        };
        let read = self.read(api, call, take, || true).await;
        memory.enough(self.operation, read)
    }

    /// Passes each entry of all pages to `take`, which returns the entry's ID if it is a valid
    /// marker for the next page.
    ///
    /// Asks `goes_on` before each further page whether to request it.
    ///
    /// The requests have no page size: services use their maximum, and with a page size Nova
    /// omits servers of cells that are down. A page that cannot be read fails the call.
    pub async fn read(
        &self,
        api: &dyn Api,
        call: Call,
        mut take: impl FnMut(&str) -> Option<String> + Send,
        mut goes_on: impl FnMut() -> bool + Send,
    ) -> Result<PagesRead, CloudError> {
        let (mut marker, mut count) = (None::<String>, 0);
        for pages in 1..=MAX_PAGES {
            let path = self.page_path(marker.as_deref());
            let get = Request::get(self.service, self.operation, &path);
            let answer = api.send(get, call).await?;
            let (entries, has_next) = self.page(&answer)?;
            count += entries.len();
            if count > MAX_ENTRIES {
                let what = format!("the list has more than {MAX_ENTRIES} entries");
                return Err(answer.malformed(&what));
            }
            let last = entries.iter().filter_map(|entry| take(entry.get())).last();
            let whole = !has_next;
            match last {
                _ if whole || !goes_on() => {
                    return Ok(PagesRead { request_id: answer.request_id, pages, whole });
                }
                Some(last) if marker.as_ref() != Some(&last) => marker = Some(last),
                _ => {
                    let what = "the list has a next page, but no valid marker";
                    return Err(answer.malformed(what));
                }
            }
        }
        let what = format!("{}: the list has more than {MAX_PAGES} pages", self.operation);
        Err(CloudError::new(ErrorKind::Malformed, what))
    }

    fn page_path(&self, marker: Option<&str>) -> String {
        let Some(marker) = marker else { return self.path.to_owned() };
        let joint = if self.path.contains('?') { '&' } else { '?' };
        format!("{}{joint}marker={}", self.path, text::query(marker))
    }

    /// Returns the entries of a page, and true if there is a next page.
    fn page<'a>(&self, answer: &'a Answer) -> Result<(Vec<&'a RawValue>, bool), CloudError> {
        if answer.status == 404 {
            let what = format!("{}: the service does not have {}", self.operation, self.path);
            return Err(answer.error(ErrorKind::NotFound, what));
        }
        let malformed = |what: String| answer.malformed(&what);
        let links_key = format!("{}_links", self.key);
        let [entries, links] = members_of(&answer.body, [self.key, &links_key])
            .map_err(|error| malformed(error.to_string()))?;
        // A body without the member does not count as an empty list.
        let entries =
            entries.ok_or_else(|| malformed(format!("it has no member {:?}", self.key)))?;
        let Entries(entries) = serde_json::from_str(entries.get())
            .map_err(|error| malformed(format!("{:?}: {error}", self.key)))?;
        let goes_on = leads_on(links.map_or("[]", RawValue::get))
            .map_err(|error| malformed(format!("links of {:?}: {error}", self.key)))?;
        Ok((entries, goes_on))
    }
}

/// Returns the ID of an entry, which is the marker of the next page.
pub fn id_of(entry: &str) -> Option<String> {
    members(entry).get("id").and_then(Value::as_str).map(str::to_owned)
}

/// Returns the members of an entry; empty if it is not an object, or is too long.
pub fn members(entry: &str) -> BTreeMap<Cow<'_, str>, Value> {
    let entry = if entry.len() > LONGEST_ENTRY { "" } else { entry };
    serde_json::from_str(entry).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use http::HeaderMap;

    use super::*;

    /// A service that answers each request with a page of this many entries, which names a next
    /// page.
    struct Endless(usize);

    #[async_trait]
    impl Api for Endless {
        async fn send(&self, request: Request<'_>, _: Call) -> Result<Answer, CloudError> {
            let id = request.path.len();
            let entries = vec![format!(r#"{{"id":"{id}"}}"#); self.0].join(",");
            let body = format!(r#"{{"ports":[{entries}],"ports_links":[{{"rel":"next"}}]}}"#);
            let headers = HeaderMap::new();
            let (operation, body) = (request.operation, body.into());
            Ok(Answer { operation, status: 200, headers, body, request_id: None })
        }

        async fn offers(&self, _: Service, _: Call) -> Result<bool, CloudError> {
            Ok(true)
        }

        async fn project_id(&self, _: Call) -> Result<String, CloudError> {
            Ok("p1".to_owned())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_entries_of_all_pages_together_are_bounded() {
        let list = Collection {
            service: Service::Network,
            operation: "port_list",
            path: "/ports",
            key: "ports",
        };
        let (mut taken, mut pages) = (0, 0);
        let take = |entry: &str| {
            taken += 1;
            // A marker of another length would make another ID.
            Some(id_of(entry)? + &"x".repeat(taken / (MAX_ENTRIES / 2)))
        };
        let goes_on = || {
            pages += 1;
            pages < 5
        };
        let call = Call::waiting(Duration::from_secs(1));
        let read = list.read(&Endless(MAX_ENTRIES / 2), call, take, goes_on).await;
        let error = read.expect_err("the list has no end");
        assert!(error.message.contains("the list has more than 200000 entries"), "{error}");
        assert_eq!(taken, MAX_ENTRIES);
    }
}
