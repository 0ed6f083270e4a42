//! The file of `--cloud-config` for the external provider.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use ccm_base::{
    Files,
    message::{LONGEST_LINE, one_line},
    nearest,
};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_settings::{
    Problems, RawSettings, RawValue, Schema as _, Setting, SettingValue as _, ValueKind, Yaml,
    settings,
};
use rustls::pki_types::ServerName;

const ENDPOINT_FORMS: &str = "unix:///path/to.sock, http://host:port or https://host:port";
const CA_MISSING: &str = "missing; an https endpoint needs the PEM file of the authority \
                          that signed the server's certificate";
/// The maximum length of a unix socket's path on Linux, in bytes.
const MAX_SOCKET_PATH: usize = 107;
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_mins(1);

/// The provider's endpoint.
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
    /// The name in the server's certificate, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalConfig {
    /// The provider's endpoint.
    pub target: Target,
    /// The TLS files, with [`Target::Tls`] only.
    pub tls: Option<TlsFiles>,
    /// The time limit of one attempt to connect.
    pub connect_timeout: Duration,
}

impl ExternalConfig {
    /// Reads the file. All problems are reported together, in one line of kind
    /// [`ErrorKind::Invalid`].
    pub fn read(path: Option<&Path>, files: &mut Files) -> Result<Self, CloudError> {
        let path = path.ok_or_else(|| {
            invalid(format!(
                "--cloud-config: missing; the external provider needs a file with an endpoint: {ENDPOINT_FORMS}"
            ))
        })?;
        let text = files
            .text(path)
            .map_err(|why| invalid(format!("--cloud-config {}: {why}", path.display())))?;
        Self::parse(path, &text)
    }

    /// Parses the text of the file at `path`. Relative paths in it are relative to the file's
    /// directory.
    pub fn parse(path: &Path, text: &str) -> Result<Self, CloudError> {
        let wrong = |what: String| invalid(format!("--cloud-config {}: {what}", path.display()));
        let value = Yaml::read(text).map_err(|error| {
            wrong(format!("not valid YAML: {}", one_line(&error.to_string(), LONGEST_LINE)))
        })?;
        let mut problems = Problems::default();
        let map = mapping(Some(&value), "", &mut problems).map_err(wrong)?;
        let config = Self::convert(map, path.parent().unwrap_or(Path::new("")), &mut problems);
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(wrong(problems.in_one_line())),
        }
    }

    fn convert(map: Option<&Yaml>, folder: &Path, problems: &mut Problems) -> Option<Self> {
        let at = |key: &str| map.and_then(|map| map.get(key));
        let tls_map = mapping(at("tls"), "tls.", problems);
        let is_shapeless = tls_map.is_err();
        let tls_map = tls_map.unwrap_or_else(|rule| {
            problems.add("tls", rule);
            None
        });
        let find = |Setting { flag, kind, .. }: &Setting| {
            let value = match flag.strip_prefix("tls.") {
                Some(key) => tls_map.and_then(|map| map.get(key)),
                None => at(flag),
            };
            let text = text_of(*kind, value)?.map(|text| match kind {
                ValueKind::Path => folder.join(text).display().to_string(),
                _ => text,
            });
            Ok(text.map(|text| RawValue::at(flag, *kind, text)))
        };
        let raw = RawSettings::of_file("", table(), find, problems);
        let target = Place::read(&raw, problems).map(|place| place.target);
        let patience = Patience::read(&raw, problems);
        let wanted = matches!(target, Some(Target::Tls { .. }));
        if let (Some(target), false, Some(_)) = (&target, wanted, tls_map) {
            let rule = format!("endpoint {target} does not use TLS; use https:// or leave tls out");
            problems.add("tls", rule);
        }
        let is_read = !is_shapeless && (wanted || tls_map.is_some());
        let tls = is_read.then(|| TlsFiles::read(&raw, problems));
        Some(Self {
            target: target?,
            tls: tls.flatten(),
            connect_timeout: patience?.connect_timeout,
        })
    }
}

/// Returns the file's text, or why it cannot be read, in words.
fn invalid(message: String) -> CloudError {
    CloudError::new(ErrorKind::Invalid, message)
}

settings! {
    /// The place of the provider.
    struct Place {
        /// Where the provider listens: unix:///path/to.sock, http://host:port or https://host:port.
        target: Target = fixed(Text, "endpoint", ""), |text: &str, _: &str| match text {
            "" => Err(format!("missing; expected {ENDPOINT_FORMS}")),
            text => parse_target(text),
        };
    }
}

settings! {
    impl TlsFiles {
        /// PEM file of the authority that signed the server's certificate.
        ca: Option<PathBuf> = fixed(Path, "tls.ca", "");
        /// PEM file of our own certificate, for servers that ask for one.
        cert: Option<PathBuf> = fixed(Path, "tls.cert", "");
        /// PEM file of its private key.
        key: Option<PathBuf> = fixed(Path, "tls.key", "");
        /// The name in the server's certificate, if it is not the endpoint's host.
        server_name: Option<String> = fixed(Text, "tls.serverName", "");
    } => |raw, problems| {
        if server_name.as_deref().is_some_and(|name| ServerName::try_from(name).is_err()) {
            raw.reject("tls.serverName", "is not a host name or address", problems);
        }
        if ca.is_none() {
            raw.reject("tls.ca", CA_MISSING, problems);
        }
        if cert.is_some() && key.is_none() {
            raw.reject("tls.key", "missing; tls.cert needs its private key", problems);
        }
        if cert.is_none() && key.is_some() {
            raw.reject("tls.cert", "missing; tls.key needs its certificate", problems);
        }
        Some(Self { ca: ca?, identity: cert.zip(key), server_name })
    }
}

settings! {
    /// The time that the program waits for the provider.
    struct Patience {
        /// How long one attempt to connect may take. A number without a unit means seconds.
        connect_timeout: Duration = fixed(Duration, "connectTimeout", "5s"),
            |text: &str, _: &str| {
                let given = Duration::parse(text).ok();
                given.filter(|given| !given.is_zero() && *given <= MAX_CONNECT_TIMEOUT).ok_or_else(|| {
                    let most = MAX_CONNECT_TIMEOUT.as_secs();
                    format!("must be a duration above 0 and at most {most} s, such as 5s or 500ms")
                })
            };
    }
}

/// Returns every key; the keys of `tls` have its prefix and a dot.
fn table() -> impl Iterator<Item = &'static Setting> {
    [Place::TABLE, TlsFiles::TABLE, Patience::TABLE].into_iter().flatten()
}

/// Returns the known keys of the mapping at this prefix.
fn keys(prefix: &str) -> Vec<&'static str> {
    let behind = |setting: &'static Setting| setting.flag.strip_prefix(prefix)?.split('.').next();
    let mut keys: Vec<_> = table().filter_map(behind).collect();
    keys.dedup();
    keys
}

/// Returns the mapping at this prefix, or `None` if it is missing. Unknown keys in it are problems.
fn mapping<'a>(
    value: Option<&'a Yaml>,
    prefix: &str,
    problems: &mut Problems,
) -> Result<Option<&'a Yaml>, String> {
    let known = keys(prefix);
    let (map, entries) = match value {
        None | Some(Yaml::Null) => return Ok(None),
        Some(map @ Yaml::Map(entries)) => (map, entries),
        Some(_) => return Err(format!("must be a mapping with the keys {}", known.join(", "))),
    };
    for name in entries.keys() {
        if known.contains(&name.as_str()) {
            continue;
        }
        let inner = name.split_once('.').filter(|(outer, _)| known.contains(outer));
        let hint = match (inner, nearest(name, &known)) {
            (Some((outer, inner)), _) => format!("write {inner} below {outer}:"),
            (None, Some(near)) => format!("did you mean {prefix}{near}?"),
            (None, None) => format!("known are {}", known.join(", ")),
        };
        problems.add(format!("{prefix}{name}"), format!("unknown key; {hint}"));
    }
    Ok(Some(map))
}

/// Returns the text of a value, if there is one, or the expected form.
fn text_of(kind: ValueKind, value: Option<&Yaml>) -> Result<Option<String>, String> {
    let value = value.unwrap_or(&Yaml::Null);
    match (kind, value.text(), value.number()) {
        _ if *value == Yaml::Null => Ok(None),
        (_, Some(text), _) if text.trim().is_empty() => {
            Err("empty; leave the key out or give a value".to_owned())
        }
        (_, Some(text), _) => Ok(Some(text.trim().to_owned())),
        (ValueKind::Duration, _, Some(seconds)) => Ok(Some(format!("{seconds}s"))),
        (ValueKind::Duration, ..) => Ok(Some(format!("{value:?}"))),
        _ => Err("must be a text".to_owned()),
    }
}

/// Parses an endpoint, or returns the problem.
pub fn parse_target(text: &str) -> Result<Target, String> {
    let (scheme, rest) = text
        .split_once("://")
        .ok_or_else(|| format!("has no scheme; expected {ENDPOINT_FORMS}"))?;
    if scheme == "unix" {
        return match Path::new(rest) {
            path if path.is_absolute() && path.file_name().is_none() => {
                Err(format!("names no socket; expected {ENDPOINT_FORMS}"))
            }
            path if path.as_os_str().len() > MAX_SOCKET_PATH => Err(format!(
                "is longer than {MAX_SOCKET_PATH} bytes, the limit for the path of a socket"
            )),
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
