//! The file of `--cloud-config` for the external provider.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use ccm_base::{
    duration,
    message::{LONGEST_LINE, one_line},
    nearest,
};
use ccm_cloud::{CloudError, ErrorKind};
use rustls::pki_types::ServerName;
use serde_yaml_ng::{Mapping, Value};

const KEYS: [&str; 3] = ["endpoint", "tls", "connectTimeout"];
const TLS_KEYS: [&str; 4] = ["ca", "cert", "key", "serverName"];
const ENDPOINT_FORMS: &str = "unix:///path/to.sock, http://host:port or https://host:port";
const CA_MISSING: &str = "tls.ca: missing; an https endpoint needs the PEM file of the authority \
                          that signed the server's certificate";
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_mins(1);

/// Where the provider listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP, in clear.
    Tcp {
        /// Host name or address, IPv6 in brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// TCP with TLS.
    Tls {
        /// Host name or address, IPv6 in brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port } => write!(f, "http://{host}:{port}"),
            Self::Tls { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

/// The PEM files of an `https` endpoint, as absolute paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authority that signed the server's certificate.
    pub ca: PathBuf,
    /// Our own certificate and its key, for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, where it is not the endpoint's host.
    pub server_name: Option<String>,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalConfig {
    /// Where the provider listens.
    pub target: Target,
    /// The TLS files, with [`Target::Tls`] only.
    pub tls: Option<TlsFiles>,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
}

impl ExternalConfig {
    /// Reads the file. Every problem is reported at once, in one line of kind
    /// [`ErrorKind::Invalid`].
    pub async fn read(path: Option<&Path>) -> Result<Self, CloudError> {
        let path = path.ok_or_else(|| {
            invalid(format!(
                "--cloud-config: missing; the external provider needs a file with an endpoint: {ENDPOINT_FORMS}"
            ))
        })?;
        let text = read_file(path)
            .await
            .map_err(|error| invalid(format!("--cloud-config {}: {error}", path.display())))?;
        Self::parse(path, &text)
    }

    /// Understands the text of the file at `path`. Relative paths in it begin at the
    /// file's folder.
    pub fn parse(path: &Path, text: &str) -> Result<Self, CloudError> {
        let wrong = |what: String| invalid(format!("--cloud-config {}: {what}", path.display()));
        let value: Value = serde_yaml_ng::from_str(text).map_err(|error| {
            wrong(format!("not valid YAML: {}", one_line(&error.to_string(), LONGEST_LINE)))
        })?;
        let mut reader =
            Reader { folder: path.parent().unwrap_or(Path::new("")), problems: Vec::new() };
        let config = reader.config(&value);
        match config {
            Some(config) if reader.problems.is_empty() => Ok(config),
            _ => Err(wrong(reader.problems.join("; "))),
        }
    }
}

/// The file's text, or why it cannot be had, in words.
async fn read_file(path: &Path) -> Result<String, String> {
    tokio::fs::read_to_string(path).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::InvalidData => "not a text file".to_owned(),
        _ => format!("cannot be read: {error}"),
    })
}

fn invalid(message: String) -> CloudError {
    CloudError::new(ErrorKind::Invalid, message)
}

/// Collects problems while it reads, so that all of them are reported at once.
struct Reader<'a> {
    folder: &'a Path,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn config(&mut self, value: &Value) -> Option<ExternalConfig> {
        let empty = Mapping::new();
        let map = match value {
            Value::Null => &empty,
            Value::Mapping(map) => map,
            _ => {
                self.problems.push(format!("must be a mapping with the keys {}", KEYS.join(", ")));
                return None;
            }
        };
        self.unknown_keys(map, "", &KEYS);
        let target = self.target(map);
        let connect_timeout = self.connect_timeout(map);
        let tls = self.tls(map, target.as_ref());
        Some(ExternalConfig { target: target?, tls, connect_timeout })
    }

    fn unknown_keys(&mut self, map: &Mapping, prefix: &str, known: &[&str]) {
        for key in map.keys() {
            let name = key.as_str().map_or_else(|| format!("{key:?}"), str::to_owned);
            if known.contains(&name.as_str()) {
                continue;
            }
            let hint = nearest(&name, known).map_or_else(
                || format!("known are {}", known.join(", ")),
                |near| format!("did you mean {prefix}{near}?"),
            );
            self.problems.push(format!("{prefix}{name}: unknown key; {hint}"));
        }
    }

    /// A text value; anything else is a problem.
    fn text(&mut self, map: &Mapping, prefix: &str, key: &str) -> Option<String> {
        match map.get(key)? {
            Value::Null => None,
            Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
            Value::String(_) => {
                self.problems
                    .push(format!("{prefix}{key}: empty; leave the key out or give a value"));
                None
            }
            _ => {
                self.problems.push(format!("{prefix}{key}: must be a text"));
                None
            }
        }
    }

    fn target(&mut self, map: &Mapping) -> Option<Target> {
        let before = self.problems.len();
        let Some(text) = self.text(map, "", "endpoint") else {
            if self.problems.len() == before {
                self.problems.push(format!("endpoint: missing; expected {ENDPOINT_FORMS}"));
            }
            return None;
        };
        match parse_target(&text) {
            Ok(target) => Some(target),
            Err(why) => {
                self.problems.push(format!("endpoint: {text:?} {why}"));
                None
            }
        }
    }

    fn connect_timeout(&mut self, map: &Mapping) -> Duration {
        let parsed = match map.get("connectTimeout") {
            None | Some(Value::Null) => return DEFAULT_CONNECT_TIMEOUT,
            Some(Value::Number(seconds)) => {
                seconds.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            }
            Some(Value::String(text)) => duration::parse(text).ok(),
            Some(_) => None,
        };
        let parsed = parsed.filter(|given| !given.is_zero() && *given <= MAX_CONNECT_TIMEOUT);
        if parsed.is_none() {
            let most = MAX_CONNECT_TIMEOUT.as_secs();
            self.problems.push(format!(
                "connectTimeout: must be a duration above 0 and at most {most} s, \
                 such as 5s or 500ms"
            ));
        }
        parsed.unwrap_or(DEFAULT_CONNECT_TIMEOUT)
    }

    fn tls(&mut self, map: &Mapping, target: Option<&Target>) -> Option<TlsFiles> {
        let wanted = matches!(target, Some(Target::Tls { .. }));
        let map = match map.get("tls") {
            None | Some(Value::Null) => {
                if wanted {
                    self.problems.push(CA_MISSING.to_owned());
                }
                return None;
            }
            Some(Value::Mapping(map)) => map,
            Some(_) => {
                self.problems
                    .push(format!("tls: must be a mapping with the keys {}", TLS_KEYS.join(", ")));
                return None;
            }
        };
        if let (false, Some(target)) = (wanted, target) {
            self.problems.push(format!(
                "tls: endpoint {target} does not use TLS; use https:// or leave tls out"
            ));
        }
        self.unknown_keys(map, "tls.", &TLS_KEYS);
        let file = |reader: &mut Self, key| {
            reader.text(map, "tls.", key).map(|text| reader.folder.join(text))
        };
        let (ca, cert, key) = (file(self, "ca"), file(self, "cert"), file(self, "key"));
        let server_name = self.text(map, "tls.", "serverName");
        if let Some(name) =
            server_name.as_deref().filter(|name| ServerName::try_from(*name).is_err())
        {
            self.problems.push(format!("tls.serverName: {name:?} is no host name or address"));
        }
        if ca.is_none() && !self.problems.iter().any(|problem| problem.starts_with("tls.ca:")) {
            self.problems.push(CA_MISSING.to_owned());
        }
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(_), None) => {
                self.problems.push("tls.key: missing; tls.cert needs its private key".to_owned());
                None
            }
            (None, Some(_)) => {
                self.problems.push("tls.cert: missing; tls.key needs its certificate".to_owned());
                None
            }
            (None, None) => None,
        };
        Some(TlsFiles { ca: ca?, identity, server_name })
    }
}

/// Understands an endpoint, or says what is wrong with it.
pub(super) fn parse_target(text: &str) -> Result<Target, String> {
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| format!("has no scheme; expected {ENDPOINT_FORMS}"))?;
    if scheme == "unix" {
        return match Path::new(rest) {
            path if path.is_absolute() => Ok(Target::Unix(path.to_owned())),
            _ => Err("must name the socket by its absolute path, with three slashes: unix:///path/to.sock".to_owned()),
        };
    }
    if scheme != "http" && scheme != "https" {
        return Err(format!("has the unknown scheme {scheme:?}; expected {ENDPOINT_FORMS}"));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) =
        authority.rsplit_once(':').ok_or("has no port; expected scheme://host:port")?;
    let port = port
        .parse::<u16>()
        .ok()
        .filter(|port| *port != 0)
        .ok_or("needs a port from 1 to 65535; expected scheme://host:port")?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if host.is_empty() || (!bracketed && !host.chars().all(legal)) {
        return Err(
            "needs a host name or an address (IPv6 in brackets); expected scheme://host:port"
                .to_owned(),
        );
    }
    if bracketed && host.trim_matches(['[', ']']).parse::<std::net::Ipv6Addr>().is_err() {
        return Err(
            "holds no IPv6 address between the brackets; expected scheme://[::1]:port".to_owned()
        );
    }
    let host = host.to_owned();
    Ok(if scheme == "http" { Target::Tcp { host, port } } else { Target::Tls { host, port } })
}

#[cfg(test)]
mod tests;
