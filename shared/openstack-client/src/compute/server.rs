//! One server in Nova's JSON.

use std::{collections::BTreeMap, fmt::Display};

use ccm_base::message::one_line;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    api::{OVERHEAD, members_of},
    ids::ServerId,
    text::MAX_VALUE,
};

/// The maximum length of an entry, in bytes. 128 metadata items of the maximum length, Nova's default
/// quota, have 400 kB if each character is escaped.
const LONGEST: usize = 1 << 20;
const NO_UUID: &str = "its ID is not a UUID";

/// A server, with the needed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its ID.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// The other fields, as received.
    pub fields: Fields,
}

/// A server's fields in Nova's JSON. Optional fields are missing in some versions of Nova or in
/// some states of the server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Fields {
    id: String,
    name: Option<String>,
    pub status: String,
    #[serde(rename = "OS-EXT-STS:task_state")]
    pub task_state: Option<String>,
    #[serde(rename = "accessIPv4")]
    pub access_ipv4: Option<String>,
    #[serde(rename = "accessIPv6")]
    pub access_ipv6: Option<String>,
    addresses: Option<BTreeMap<String, Vec<Address>>>,
    metadata: Option<BTreeMap<String, String>>,
    pub flavor: Option<Flavor>,
    #[serde(rename = "OS-EXT-AZ:availability_zone")]
    pub zone: Option<String>,
    #[serde(rename = "hostId")]
    pub host_id: Option<String>,
}

/// One address in Nova's list of the server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Address {
    /// The address.
    pub addr: String,
    /// `fixed` or `floating`.
    #[serde(rename = "OS-EXT-IPS:type")]
    pub kind: Option<String>,
    /// The MAC address of its port.
    #[serde(rename = "OS-EXT-IPS-MAC:mac_addr")]
    pub mac: Option<String>,
}

/// A server's flavor: the ID below microversion 2.47, the embedded flavor from then on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Flavor {
    /// Its ID.
    pub id: Option<String>,
    /// Its name when the server was created.
    pub original_name: Option<String>,
}

impl Server {
    /// Returns a message about it, with ID and name.
    pub fn about(&self, what: impl Display) -> String {
        let name = one_line(&self.name, MAX_VALUE);
        format!("server with ID {:?} and name {name:?}: {what}", self.id.as_str())
    }

    /// Returns its status, for instance `ACTIVE`.
    pub fn status(&self) -> &str {
        &self.fields.status
    }

    /// Returns true if it exists: a soft-deleted server does not.
    pub fn exists(&self) -> bool {
        !matches!(self.status(), "DELETED" | "SOFT_DELETED")
    }

    /// Returns its addresses by the name of the network.
    pub fn addresses(&self) -> impl Iterator<Item = (&String, &Vec<Address>)> {
        self.fields.addresses.iter().flatten()
    }

    /// Returns the memory that it takes beside itself, about, in bytes.
    fn size(&self) -> usize {
        let Fields { id, status, task_state, access_ipv4, access_ipv6, zone, host_id, .. } =
            &self.fields;
        let options = [task_state, access_ipv4, access_ipv6, zone, host_id];
        let flavor =
            self.fields.flavor.iter().flat_map(|flavor| [&flavor.id, &flavor.original_name]);
        let options = options.into_iter().chain(flavor).flatten();
        let texts = [&self.name, &self.name, id, id, status].into_iter().chain(options);
        let address = |address: &Address| {
            let texts = [&address.kind, &address.mac].into_iter().flatten().map(String::len);
            size_of::<Address>() + OVERHEAD + address.addr.len() + texts.sum::<usize>()
        };
        let of_network = |(name, list): (&String, &Vec<Address>)| {
            name.len() + OVERHEAD + list.iter().map(address).sum::<usize>()
        };
        let item = |(key, value): (&String, &String)| key.len() + value.len() + OVERHEAD;
        texts.map(String::len).sum::<usize>()
            + self.addresses().map(of_network).sum::<usize>()
            + self.metadata().map(item).sum::<usize>()
    }

    /// Returns its user metadata.
    pub fn metadata(&self) -> impl Iterator<Item = (&String, &String)> {
        self.fields.metadata.iter().flatten()
    }
}

/// An entry of a list of servers, or the response about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A server.
    Whole(Box<Server>),
    /// A server that exists in a cell that is down: name, addresses and most other fields are
    /// unknown.
    Partial {
        /// Its ID.
        id: ServerId,
        /// Its status, `UNKNOWN`.
        status: String,
    },
    /// An entry that cannot be parsed.
    Malformed {
        /// Its ID, if it can be parsed.
        id: Option<ServerId>,
        /// Its name, if it can be parsed.
        name: Option<String>,
        /// The problem, with ID and name.
        line: String,
    },
}

impl Row {
    /// Parses an entry. A malformed entry does not affect the others.
    pub fn read(json: &str) -> Self {
        if json.len() > LONGEST {
            let what = format!("its entry is longer than {} MiB", LONGEST >> 20);
            return Self::malformed(json, &what);
        }
        let fields: Fields = match serde_json::from_str(json) {
            Ok(fields) => fields,
            Err(error) => return Self::malformed(json, &error.to_string()),
        };
        let Some(id) = ServerId::parse(&fields.id) else {
            return Self::malformed(json, NO_UUID);
        };
        match fields.name.clone() {
            Some(name) if fields.addresses.is_some() => {
                Self::Whole(Box::new(Server { id, name, fields }))
            }
            _ => Self::Partial { id, status: one_line(&fields.status, MAX_VALUE) },
        }
    }

    fn malformed(json: &str, why: &str) -> Self {
        let [id, name] = texts(json);
        let id = id.as_deref().and_then(ServerId::parse);
        Self::Malformed { id, name, line: trouble(json, why) }
    }

    /// Returns the ID, if it is known.
    pub fn id(&self) -> Option<&ServerId> {
        match self {
            Self::Whole(server) => Some(&server.id),
            Self::Partial { id, .. } => Some(id),
            Self::Malformed { id, .. } => id.as_ref(),
        }
    }

    /// Returns the memory that it takes, about, in bytes.
    pub fn size(&self) -> usize {
        let own = size_of::<Self>() + OVERHEAD;
        own + match self {
            Self::Whole(server) => size_of::<Server>() + server.size(),
            Self::Partial { status, .. } => status.len(),
            Self::Malformed { name, line, .. } => name.as_ref().map_or(0, String::len) + line.len(),
        }
    }

    /// Returns the name, if it is known.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Whole(server) => Some(&server.name),
            Self::Partial { .. } => None,
            Self::Malformed { name, .. } => name.as_deref(),
        }
    }

    /// Returns why this server cannot be described; `None` if it can.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Whole(_) => None,
            Self::Partial { id, status } => Some(format!(
                "server with ID {id:?} has status {status} and no name or addresses: its cell \
                 of Nova is down",
                id = id.as_str()
            )),
            Self::Malformed { line, .. } => Some(line.clone()),
        }
    }
}

/// Reads ID and name of an entry of the short list; the error is about a malformed entry.
pub fn read_name(json: &str) -> Result<(ServerId, String), String> {
    #[derive(Deserialize)]
    struct Short {
        id: String,
        name: Option<String>,
    }
    let about = |why: &str| trouble(json, why);
    let short: Short = serde_json::from_str(json).map_err(|error| about(&error.to_string()))?;
    let id = ServerId::parse(&short.id).ok_or_else(|| about(NO_UUID))?;
    let name = short.name.ok_or_else(|| about("its cell of Nova is down"))?;
    Ok((id, name))
}

/// Returns a message about an entry, with ID and name as far as they can be parsed.
fn trouble(json: &str, why: &str) -> String {
    let shown = |text: Option<String>| match text {
        Some(text) => format!("{:?}", one_line(&text, MAX_VALUE)),
        None => "without one".to_owned(),
    };
    let [id, name] = texts(json).map(shown);
    let why = one_line(why, MAX_VALUE);
    format!("server with ID {id} and name {name}: {why}")
}

/// Returns ID and name of an entry, as far as they are texts. Takes no memory for its other
/// members.
fn texts(json: &str) -> [Option<String>; 2] {
    let text = |value: &RawValue| serde_json::from_str(value.get()).ok();
    let known = members_of(json.as_bytes(), ["id", "name"]).unwrap_or_default();
    known.map(|value| value.and_then(text))
}

#[cfg(test)]
mod tests;
