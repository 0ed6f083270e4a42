//! The request bodies to Octavia for a whole object.

use serde_json::{Value, json};

use super::{Checks, HTTP, Listener, Monitor, Pool};

impl Listener {
    /// Returns the settings that can be changed.
    pub fn settings(&self) -> Value {
        let mut settings = json!({
            "connection_limit": self.connection_limit,
            "insert_headers": self.headers,
        });
        if let Some(timeouts) = self.timeouts {
            settings["timeout_client_data"] = timeouts.client_data.into();
            settings["timeout_member_connect"] = timeouts.member_connect.into();
            settings["timeout_member_data"] = timeouts.member_data.into();
            settings["timeout_tcp_inspect"] = timeouts.tcp_inspect.into();
        }
        if let Some(cidrs) = &self.allowed_cidrs {
            settings["allowed_cidrs"] = json!(cidrs);
        }
        settings
    }

    /// Returns the body of the request, without the load balancer and the pool.
    pub fn body(&self) -> Value {
        let mut body = self.settings();
        body["name"] = self.name.clone().into();
        body["protocol"] = self.protocol.into();
        body["protocol_port"] = self.port.into();
        body["tags"] = json!(self.tags);
        body
    }
}

impl Pool {
    /// Returns the body of the request, without its listener, members and monitor.
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

    /// Returns how a pool keeps a client at a member; null if it does not.
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
    /// Returns the settings that can be changed.
    pub fn settings(&self) -> Value {
        let Checks { delay, timeout, max_retries, max_retries_down } = self.checks;
        let mut settings = json!({
            "delay": delay,
            "timeout": timeout,
            "max_retries": max_retries,
            "max_retries_down": max_retries_down,
        });
        if self.kind == HTTP {
            settings["url_path"] = "/healthz".into();
            settings["http_method"] = "GET".into();
            settings["expected_codes"] = "200".into();
        }
        settings
    }

    /// Returns the body of the request, without its pool.
    pub fn body(&self) -> Value {
        let mut body = self.settings();
        body["name"] = self.name.clone().into();
        body["type"] = self.kind.into();
        body
    }
}
