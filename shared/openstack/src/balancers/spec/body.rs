//! The request bodies to Octavia for a whole object.

use serde_json::{Value, json};

use super::{Listener, Monitor, Pool};

impl Listener {
    /// Without the load balancer and the pool.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "name": self.name,
            "protocol": self.protocol,
            "protocol_port": self.port,
            "connection_limit": self.connection_limit,
            "tags": self.tags,
        });
        if let Some(timeouts) = self.timeouts {
            body["timeout_client_data"] = timeouts.client_data.into();
            body["timeout_member_connect"] = timeouts.member_connect.into();
            body["timeout_member_data"] = timeouts.member_data.into();
            body["timeout_tcp_inspect"] = timeouts.tcp_inspect.into();
        }
        if !self.headers.is_empty() {
            body["insert_headers"] = json!(self.headers);
        }
        if let Some(cidrs) = &self.allowed_cidrs {
            body["allowed_cidrs"] = json!(cidrs);
        }
        body
    }
}

impl Pool {
    /// Without its listener, members and monitor.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "name": self.name,
            "protocol": self.protocol,
            "lb_algorithm": self.algorithm,
            "tags": self.tags,
        });
        if self.affinity {
            body["session_persistence"] = self.persistence();
        }
        body
    }

    /// How it keeps a client at a member; null if it does not.
    pub fn persistence(&self) -> Value {
        match (self.affinity, self.affinity_timeout) {
            (false, _) => Value::Null,
            (true, None) => json!({ "type": "SOURCE_IP" }),
            (true, Some(seconds)) => {
                json!({ "type": "SOURCE_IP", "persistence_timeout": seconds })
            }
        }
    }
}

impl Monitor {
    /// Without its pool.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "name": self.name,
            "type": self.kind,
            "delay": self.checks.delay,
            "timeout": self.checks.timeout,
            "max_retries": self.checks.max_retries,
            "max_retries_down": self.checks.max_retries_down,
        });
        if self.kind == "HTTP" {
            body["url_path"] = "/healthz".into();
            body["http_method"] = "GET".into();
            body["expected_codes"] = "200".into();
        }
        body
    }
}
