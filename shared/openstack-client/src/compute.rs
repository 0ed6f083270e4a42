//! Requests to Nova.
//!
//! Nova cannot return selected fields only, so the structs skip the unneeded ones.

mod server;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ccm_base::message::one_line;
use ccm_cloud::{Call, CloudError};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;

pub use server::{Address, Row, Server};

use crate::{
    api::{Answer, Api, Collection, Memory, Microversion, OVERHEAD, PagesRead, Request, Service},
    ids::ServerId,
    text::{MAX_MESSAGE, exactly, query},
};

const LIST: &str = "/servers/detail";
const SHORT_LIST: &str = "/servers";
/// From this microversion on, Nova's list contains the servers of cells that are down: without
/// their names, and only on the first page of a list without filters.
const SHOWS_SILENT_CELLS: Microversion = Microversion { major: 2, minor: 69 };
/// How long a project counts as one with several pages of servers after such a list.
const LONG_FOR: Duration = Duration::from_mins(10);

/// The result of a request for one ID.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The server; `None` if Nova itself answered that it does not exist.
    pub row: Option<Row>,
    /// The request and its response.
    pub evidence: String,
    /// Nova's ID of the request.
    pub request_id: Option<String>,
}

/// A list of servers.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The servers, each ID once.
    pub rows: Vec<Row>,
    /// True if all pages were read.
    pub whole: bool,
    /// Nova's ID of the last request.
    pub request_id: Option<String>,
    /// Why servers may be missing in it; `None` if it is complete.
    pub gap: Option<String>,
}

/// Nova.
pub struct Nova {
    api: Arc<dyn Api>,
    /// When a list of the whole project last had several pages.
    long: Mutex<Option<Instant>>,
    /// The number of servers of the project, as far as lists have shown them.
    size: AtomicUsize,
}

impl Nova {
    /// Creates a client of Nova that uses this API.
    pub fn new(api: Arc<dyn Api>) -> Self {
        Self { api, long: Mutex::default(), size: AtomicUsize::new(0) }
    }

    /// Requests the server of this ID. A 404 that does not come from Nova is an error.
    pub async fn server(&self, id: &ServerId, call: Call) -> Result<Asked, CloudError> {
        let path = format!("/servers/{id}");
        let request = Request::get(Service::Compute, "server_get", &path);
        let answer = self.api.send(request, call).await?;
        let row = if answer.status == 404 { None } else { Some(one_server(id, &answer)?) };
        let evidence = match &row {
            None => {
                let place =
                    self.api.place().map_or_else(String::new, |place| format!(" for {place}"));
                format!("GET {path} answered 404{place}: {}", body_of(&answer))
            }
            Some(Row::Whole(server)) => format!("GET {path} answered status {}", server.status()),
            Some(_) => format!("GET {path} answered in part"),
        };
        Ok(Asked { row, evidence, request_id: answer.request_id })
    }

    /// Returns the servers of this name, and of names that differ in case if Nova's database
    /// ignores it. Servers of a cell that is down are missing, so an empty result proves nothing.
    pub async fn servers_by_name(&self, name: &str, call: Call) -> Result<Listing, CloudError> {
        let path = format!("{LIST}?name={}", query(&exactly(name)));
        let mut rows = Rows::default();
        let read = servers(&path).read(&*self.api, call, |entry| rows.add(entry), || true).await;
        let read = rows.memory.enough("server_list", read)?;
        let gap = Some("it contains servers of one name only".to_owned());
        Ok(Listing { rows: rows.all, whole: true, request_id: read.request_id, gap })
    }

    /// Returns the servers of the project. After a page with at least `most` of them no further
    /// page is requested: then the list has a gap.
    pub async fn all_servers(&self, call: Call, most: usize) -> Result<Listing, CloudError> {
        let mut rows = Rows::default();
        let read = self.project(LIST, call, most, |entry| rows.add(entry)).await;
        let read = rows.memory.enough("server_list", read)?;
        let rows = rows.all;
        let gap = match self.gap() {
            Some(gap) => Some(gap),
            None if rows.is_empty() => Some("it is empty".to_owned()),
            None if read.request_id.is_none() => {
                Some("Nova returned no request ID for it".to_owned())
            }
            None => None,
        };
        Ok(Listing { rows, whole: read.whole, request_id: read.request_id, gap })
    }

    /// Returns the IDs and names of all servers of the project; an error is about a malformed
    /// entry. Soft-deleted servers are not in this list.
    pub async fn all_names(
        &self,
        call: Call,
    ) -> Result<Vec<Result<(ServerId, String), String>>, CloudError> {
        let (mut seen, mut entries, memory) = (BTreeSet::new(), Vec::new(), Memory::default());
        let take = |entry: &str| {
            let entry = server::read_name(entry);
            let text = entry.as_ref().map_or_else(String::len, |(_, name)| name.len());
            memory.take(size_of_val(&entry) + text + OVERHEAD)?;
            let id = entry.as_ref().ok().map(|(id, _)| id.clone());
            if id.as_ref().is_none_or(|id| seen.insert(id.clone())) {
                entries.push(entry);
            }
            id.map(|id| id.to_string())
        };
        let read = self.project(SHORT_LIST, call, usize::MAX, take).await;
        memory.enough("server_list", read)?;
        Ok(entries)
    }

    /// Reads a list of the project, and learns its size from each page, also if the list fails
    /// later.
    async fn project(
        &self,
        path: &str,
        call: Call,
        most: usize,
        mut take: impl FnMut(&str) -> Option<String> + Send,
    ) -> Result<PagesRead, CloudError> {
        let count = AtomicUsize::new(0);
        let counted = |entry: &str| {
            count.fetch_add(1, Ordering::Relaxed);
            take(entry)
        };
        let goes_on = || {
            let count = count.load(Ordering::Relaxed);
            self.size.fetch_max(count + 1, Ordering::Relaxed);
            *self.long.lock() = Some(Instant::now());
            count < most
        };
        let read = servers(path).read(&*self.api, call, counted, goes_on).await?;
        if read.whole {
            self.size.store(count.into_inner(), Ordering::Relaxed);
            if read.pages == 1 {
                *self.long.lock() = None;
            }
        }
        Ok(read)
    }

    /// Returns the number of servers of the project, as far as lists have shown them; 0 before the
    /// first.
    pub fn project_size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Returns why servers may be missing in a list of the project, as far as this is known without
    /// a new list. Call it after a request to Nova, which discovers the microversion.
    pub fn gap(&self) -> Option<String> {
        let spoken = self.api.microversion();
        if spoken.is_none_or(|spoken| spoken < SHOWS_SILENT_CELLS) {
            let spoken = spoken.map_or_else(|| "no microversion".to_owned(), |v| v.to_string());
            return Some(format!(
                "Nova omits servers of a cell that is down below microversion \
                 {SHOWS_SILENT_CELLS}, and this Nova supports {spoken}"
            ));
        }
        let long = *self.long.lock();
        long.filter(|at| at.elapsed() < LONG_FOR)?;
        Some(
            "it has several pages, and Nova omits servers of a cell that is down after the first"
                .to_owned(),
        )
    }
}

/// The servers of a list, each ID once.
#[derive(Default)]
struct Rows {
    all: Vec<Row>,
    seen: BTreeSet<ServerId>,
    memory: Memory,
}

impl Rows {
    /// Adds an entry. Returns its ID if it is a valid marker for the next page.
    fn add(&mut self, entry: &str) -> Option<String> {
        let row = Row::read(entry);
        self.memory.take(row.size())?;
        // Nova does not accept a server whose cell is down as a marker.
        let is_partial = matches!(row, Row::Partial { .. });
        let marker = row.id().filter(|_| !is_partial).map(ToString::to_string);
        if row.id().is_none_or(|id| self.seen.insert(id.clone())) {
            self.all.push(row);
        }
        marker
    }
}

/// Returns a list of servers.
const fn servers(path: &str) -> Collection<'_> {
    Collection { service: Service::Compute, operation: "server_list", path, key: "servers" }
}

/// Parses the response about one server, and checks that it is about this server.
fn one_server(id: &ServerId, answer: &Answer) -> Result<Row, CloudError> {
    let server: &RawValue = answer.object("server")?;
    let row = Row::read(server.get());
    match row.id() {
        Some(answered) if answered != id => {
            let what = format!("the request was about {id}, the response is about {answered}");
            Err(answer.malformed(&what))
        }
        _ => Ok(row),
    }
}

fn body_of(answer: &Answer) -> String {
    one_line(&String::from_utf8_lossy(&answer.body), MAX_MESSAGE)
}
