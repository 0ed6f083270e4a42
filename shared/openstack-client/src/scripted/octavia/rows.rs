//! Plays lists and rows, and checks the fields that a request may have.

use serde_json::{Map, Value, json};

use super::{Octavia, Reply, invalid};
use crate::scripted::paged;

/// Fields, and the minor version that introduced them.
const SINCE: [(&str, u32); 10] = [
    ("timeout_client_data", 1),
    ("timeout_member_connect", 1),
    ("timeout_member_data", 1),
    ("timeout_tcp_inspect", 1),
    ("tags", 5),
    ("flavor_id", 6),
    ("allowed_cidrs", 12),
    ("availability_zone", 14),
    ("additional_vips", 26),
    ("vip_sg_ids", 29),
];
/// The fields of a health monitor that may change.
pub const MONITOR: [&str; 10] = [
    "name",
    "tags",
    "admin_state_up",
    "delay",
    "timeout",
    "max_retries",
    "max_retries_down",
    "url_path",
    "http_method",
    "expected_codes",
];
/// The parameters of queries besides filters.
const AUXILIARY: [&str; 3] = ["fields", "limit", "marker"];

impl Octavia {
    /// Returns true if this version knows the field.
    fn knows(&self, field: &str) -> bool {
        SINCE.iter().all(|(name, minor)| *name != field || *minor <= self.minor)
    }

    /// Returns the fields of a request's object, if it may have them.
    pub fn fields(
        &self,
        argument: &str,
        body: &Value,
        known: &[&str],
    ) -> Result<Map<String, Value>, (u16, String)> {
        let Some(fields) = body.as_object() else {
            let argument = argument.split('.').next().unwrap();
            return Err((400, format!("Missing argument: \"{argument}\"")));
        };
        let odd = fields.keys().find(|key| !known.contains(&key.as_str()) || !self.knows(key));
        if let Some(field) = odd {
            return Err((400, format!("Unknown attribute for argument {argument}: {field}")));
        }
        for field in ["name", "description"] {
            check(field, fields.get(field), |text| {
                text.is_null() || text.as_str().is_some_and(|text| text.len() <= 255)
            })?;
        }
        Ok(fields.clone())
    }

    /// Returns a page of rows. A filter that is given twice is an error of the database, as with
    /// the real one.
    pub fn list(
        &self,
        kind: &'static str,
        rows: &[Value],
        query: &[(String, String)],
    ) -> Result<Value, (u16, String)> {
        let shown: Vec<Value> = rows.iter().map(|row| self.shown_row(kind, row)).collect();
        let filters: Vec<_> = query
            .iter()
            .filter(|(key, _)| !AUXILIARY.contains(&key.as_str()) && !key.starts_with("tags"))
            .collect();
        for (at, (key, _)) in filters.iter().enumerate() {
            if filters.iter().skip(at + 1).any(|(other, _)| other == key) {
                return Err((500, "(pymysql.err.OperationalError) (4078)".to_owned()));
            }
            let row = shown.first().unwrap_or(&Value::Null);
            let parent = matches!(key.as_str(), "loadbalancer_id" | "pool_id");
            if !row.is_null() && row.get(key).is_none() && !parent {
                let why = "One or more arguments are either duplicate or invalid";
                return Err((400, why.to_owned()));
            }
        }
        let wanted = |row: &&Value| {
            let fits = filters.iter().all(|(key, value)| match key.as_str() {
                "loadbalancer_id" => refers(&row["loadbalancers"], value),
                "pool_id" => refers(&row["pools"], value),
                key => row[key].as_str() == Some(value),
            });
            let has = |tag: &str| {
                row["tags"].as_array().is_some_and(|tags| tags.iter().any(|own| own == tag))
            };
            let tags = query.iter().filter(|(key, _)| key == "tags");
            let mut any = query.iter().filter(|(key, _)| key == "tags-any").peekable();
            fits && tags.flat_map(|(_, tags)| tags.split(',')).all(has)
                && (any.peek().is_none() || any.flat_map(|(_, tags)| tags.split(',')).any(has))
        };
        let paging: Vec<(&str, String)> = query
            .iter()
            .filter(|(key, _)| ["fields", "marker"].contains(&key.as_str()))
            .map(|(key, value)| (key.as_str(), value.clone()))
            .collect();
        let limit = query.iter().find(|(key, _)| key == "limit");
        let limit = limit.map_or(self.page, |(_, limit)| limit.parse().unwrap());
        let listed = shown.iter().filter(wanted);
        let answer = paged(kind, listed, &paging, limit.min(self.page));
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
        let links = format!("{kind}_links");
        if body.get(&links).is_none() {
            body[links] = json!([]);
        }
        Ok(body)
    }

    /// Returns a row as answers show it: with its references, and without what this version does
    /// not know.
    pub fn shown_row(&self, kind: &str, row: &Value) -> Value {
        let id = &row["id"];
        let ids = |rows: &[Value], fits: &dyn Fn(&Value) -> bool| -> Value {
            let fitting = rows.iter().filter(|row| fits(row));
            fitting.map(|row| json!({ "id": row["id"] })).collect::<Vec<_>>().into()
        };
        let mut shown = row.clone();
        match kind {
            "loadbalancers" => {
                shown["listeners"] = ids(&self.listeners, &|row| row["_balancer"] == *id);
                shown["pools"] = ids(&self.pools, &|row| row["_balancer"] == *id);
            }
            "listeners" => shown["loadbalancers"] = json!([{ "id": row["_balancer"] }]),
            "pools" => {
                let monitor = self.monitors.iter().find(|row| row["_pool"] == *id);
                shown["loadbalancers"] = json!([{ "id": row["_balancer"] }]);
                shown["listeners"] = ids(&self.listeners, &|row| row["default_pool_id"] == *id);
                shown["members"] = ids(&self.members, &|row| row["_pool"] == *id);
                shown["healthmonitor_id"] = monitor.map_or(Value::Null, |row| row["id"].clone());
            }
            "healthmonitors" => shown["pools"] = json!([{ "id": row["_pool"] }]),
            _ => {}
        }
        let fields = shown.as_object_mut().unwrap();
        fields.retain(|key, _| !key.starts_with('_') && self.knows(key));
        shown
    }

    /// Returns the list of the children of this kind.
    pub fn list_children(&self, kind: &str, query: &[(String, String)]) -> Reply {
        let (kind, rows) = match kind {
            "listeners" => ("listeners", &self.listeners),
            "pools" => ("pools", &self.pools),
            "healthmonitors" => ("healthmonitors", &self.monitors),
            _ => return Err((404, String::new())),
        };
        Ok((200, self.list(kind, rows, query)?))
    }
}

fn refers(references: &Value, id: &str) -> bool {
    references.as_array().is_some_and(|all| all.iter().any(|one| one["id"] == *id))
}

/// Refuses a value that does not fit, in the words of the real one.
pub fn check(
    field: &str,
    value: Option<&Value>,
    fits: impl Fn(&Value) -> bool,
) -> Result<(), (u16, String)> {
    match value {
        Some(value) if !fits(value) => {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let why = format!("Invalid input for field/attribute {field}. Value: '{value}'.");
            Err((400, why))
        }
        _ => Ok(()),
    }
}

/// Refuses a health monitor of no kind, and one that checks UDP members too often.
pub fn check_monitor(given: &Value) -> Result<(), (u16, String)> {
    let kinds = ["TCP", "HTTP", "HTTPS", "PING", "TLS-HELLO", "UDP-CONNECT", "SCTP"];
    let kind = given["type"].as_str().unwrap_or_default();
    check("type", Some(&given["type"]), |_| kinds.contains(&kind))?;
    let delay = &given["delay"];
    if kind == "UDP-CONNECT" && delay.as_u64().is_some_and(|delay| delay < 3) {
        let why = format!(
            "The request delay value {delay} should be larger than 3 for UDP-CONNECT health \
             monitor type."
        );
        return Err(invalid(&why));
    }
    Ok(())
}
