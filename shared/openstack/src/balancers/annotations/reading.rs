//! Reads single annotations and collects their problems.

use std::{cell::RefCell, collections::BTreeMap, ops::RangeInclusive};

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, Note, is_host_name};
use ccm_openstack_client::text::{MAX_MESSAGE, MAX_VALUE};

use super::{
    Checks, FloatingNetwork, Given, INTERNAL, LocalChecks, Networks, PREFIX, Proxy, Source,
    Timeouts, remark,
    selector::is_valid,
    unknown::{self, Unknown},
};
use crate::{
    balancers::names,
    config::{Config, LoadBalancerClass, LocalMonitor, METHODS},
};

/// The name of the annotation that turns health monitors on or off.
const MONITOR: &str = "enable-health-monitor";
/// Octavia's longest time limit of a listener, in milliseconds.
const LONGEST: i64 = 86_400_000;

/// Annotations while they are read.
pub struct Reading<'a> {
    annotations: &'a BTreeMap<String, String>,
    config: &'a Config,
    /// The class that the Service chooses.
    class: Option<(String, &'a LoadBalancerClass)>,
    /// The problems: source and line.
    problems: Vec<(Source, String)>,
    notes: RefCell<Vec<Note>>,
}

impl<'a> Reading<'a> {
    pub fn new(annotations: &'a BTreeMap<String, String>, config: &'a Config) -> Self {
        let (problems, notes) = (Vec::new(), RefCell::default());
        let mut this = Self { annotations, config, class: None, problems, notes };
        this.class = this.class();
        this
    }

    /// Returns the remarks; or an error that names all problems.
    pub fn done(self) -> Result<Vec<Note>, CloudError> {
        let Some((first, _)) = self.problems.first() else {
            let mut notes = self.notes.into_inner();
            notes.dedup();
            return Ok(notes);
        };
        let lines = self.problems.iter().map(|(source, what)| format!("{source}: {what}"));
        let what = lines.collect::<Vec<_>>().join("; ");
        Err(CloudError::new(ErrorKind::Invalid, what).about(first.to_string()))
    }

    pub fn problem(&mut self, key: &str, what: String) {
        self.problems.push((Source::annotation(key), what));
    }

    /// Adds a remark about an annotation that counts as its default.
    fn ignored(&self, key: &str, value: &str, right: &str) {
        let value = one_line(value, MAX_VALUE);
        let what = format!("annotation {key}: {value:?} is ignored; must be {right}");
        self.notes.borrow_mut().push(remark("InvalidAnnotation", what));
    }

    /// Adds remarks on unknown annotations. Returns the first one that seems to ask for an internal
    /// load balancer.
    pub fn unknown(&self) -> Option<Given> {
        let all = self.annotations.iter();
        let unknown: Vec<(Unknown<'_>, &String)> =
            all.filter_map(|(key, value)| Some((Unknown::from_key(key)?, value))).collect();
        let asks =
            |(one, value): &&(Unknown<'_>, &String)| one.means_internal && value.trim() != "false";
        let misspelt = unknown.iter().find(asks).map(|(one, _)| {
            let what = format!(
                "it is unknown, and the load balancer would be public: rename it to \
                 {INTERNAL}, or remove it"
            );
            Given { value: what, source: one.source() }
        });
        let unknown = unknown.into_iter().map(|(one, _)| one).collect();
        self.notes.borrow_mut().extend(unknown::remarks(unknown));
        misspelt
    }

    /// Returns the annotation for an internal load balancer, if its value is neither true nor false.
    pub fn unreadable_internal(&self) -> Option<Given> {
        let value = self.annotations.get(INTERNAL)?.trim();
        if matches!(value, "true" | "false") {
            return None;
        }
        let value = format!(
            "{:?} is neither true nor false, and the load balancer would be public: correct it, or \
             remove it",
            one_line(value, MAX_VALUE)
        );
        Some(Given { value, source: Source::Annotation(INTERNAL.to_owned()) })
    }

    /// Returns an annotation as it is; an empty one differs from a missing one.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.annotations.get(&format!("{PREFIX}{key}")).map(|text| text.trim())
    }

    pub fn flag_of(&self, key: &str, default: bool) -> bool {
        match self.annotations.get(key).map(|text| text.trim()) {
            Some("true") => true,
            Some("false") => false,
            Some(other) => {
                self.ignored(key, other, "true or false");
                default
            }
            None => default,
        }
    }

    pub fn flag(&self, key: &str, default: bool) -> bool {
        self.flag_of(&format!("{PREFIX}{key}"), default)
    }

    /// Reads a whole number. A value that is not a number counts as the default. A number out of range
    /// is a problem, or counts as the default too if `is_lenient`.
    pub fn number(
        &mut self,
        key: &str,
        default: i64,
        range: RangeInclusive<i64>,
        is_lenient: bool,
    ) -> i64 {
        let Some(text) = self.text(key) else { return default };
        let right = format!("a whole number from {} to {}", range.start(), range.end());
        match text.parse::<i64>() {
            Ok(number) if range.contains(&number) => return number,
            Ok(number) if !is_lenient => {
                self.problem(key, format!("{number} is out of range; must be {right}"));
            }
            _ => self.ignored(&format!("{PREFIX}{key}"), text, &right),
        }
        default
    }

    /// Returns a value of the annotation, else of the option of the same name.
    pub fn given(&self, key: &'static str, config: Option<&String>) -> Option<Given> {
        let (value, source) = match self.text(key) {
            Some(text) => (text.to_owned(), Source::annotation(key)),
            None => (config?.clone(), Source::Option(key)),
        };
        (!value.is_empty()).then_some(Given { value, source })
    }

    fn class(&mut self) -> Option<(String, &'a LoadBalancerClass)> {
        let name = self.text("class").filter(|name| !name.is_empty())?;
        let class = self.config.classes.get(name);
        if class.is_none() {
            let known: Vec<&str> = self.config.classes.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => "cloud.conf does not have any".to_owned(),
                known => format!("cloud.conf has {}", one_line(&known.join(", "), MAX_MESSAGE)),
            };
            let name = one_line(name, MAX_VALUE);
            self.problem("class", format!("there is no [LoadBalancerClass {name:?}]; {known}"));
        }
        class.map(|class| (name.to_owned(), class))
    }

    /// Returns a value of annotation, class or options, whichever exists first. With `class_first`
    /// the class beats the annotation.
    fn placed(
        &self,
        key: &'static str,
        class_first: bool,
        value: impl Fn(&LoadBalancerClass) -> &Option<String>,
    ) -> Option<Given> {
        let given = |value: &String, source| Given { value: value.clone(), source };
        let of_class = self.class.as_ref().and_then(|(name, networks)| {
            Some(given(value(networks).as_ref()?, Source::Class(name.clone(), key)))
        });
        let of_annotation =
            self.text(key).map(|text| given(&text.to_owned(), Source::annotation(key)));
        let (first, second) =
            if class_first { (of_class, of_annotation) } else { (of_annotation, of_class) };
        let of_options = value(&self.config.networks).as_ref();
        let of_options = of_options.map(|value| given(value, Source::Option(key)));
        first.or(second).or(of_options).filter(|given| !given.value.is_empty())
    }

    pub fn networks(&self, internal: bool) -> Networks {
        let key = "floating-network-id";
        let network = self.placed(key, true, |it| &it.floating_network_id);
        let floating = match (network, self.text(key)) {
            (Some(network), _) => FloatingNetwork::Named(network),
            (None, Some("")) => FloatingNetwork::Refused(Source::annotation(key)),
            (None, _) => FloatingNetwork::Found,
        };
        let id = self.placed("floating-subnet-id", true, |it| &it.floating_subnet_id);
        let patterns = [
            self.placed("floating-subnet", true, |it| &it.floating_subnet),
            self.placed("floating-subnet-tags", true, |it| &it.floating_subnet_tags),
        ];
        // Within one source the ID counts; of two sources the first one counts.
        let rank = |given: &Given| (!given.source.is_of_service(), given.source.is_annotation());
        let is_hidden = |given: &Given| id.as_ref().is_some_and(|id| rank(id) <= rank(given));
        let floating_patterns: Vec<Given> =
            patterns.into_iter().flatten().filter(|given| !is_hidden(given)).collect();
        Networks {
            port: self.given("port-id", None),
            network: self.placed("network-id", !internal, |it| &it.network_id),
            subnet: self.placed("subnet-id", !internal, |it| &it.subnet_id),
            member_subnet: self.placed("member-subnet-id", false, |it| &it.member_subnet_id),
            floating,
            floating_subnet: id.filter(|_| floating_patterns.is_empty()),
            floating_patterns,
        }
    }

    /// Returns the host name for the status. Kubernetes accepts no others there.
    pub fn hostname(&mut self) -> Option<String> {
        let name = self.text("hostname").filter(|name| !name.is_empty())?;
        if !is_host_name(name) {
            let name = one_line(name, MAX_VALUE);
            let right = "must be a DNS name in lower case, such as web.example.com";
            self.problem("hostname", format!("{name:?} is not a host name; {right}"));
            return None;
        }
        Some(name.to_owned())
    }

    /// Adds a remark on an invalid selector.
    pub fn selector(&self) {
        if let Some(text) = self.text("node-selector").filter(|text| !is_valid(text)) {
            let right = "labels of nodes: key=value,key2";
            self.ignored(&format!("{PREFIX}node-selector"), text, right);
        }
    }

    pub fn proxy(&self) -> Option<Proxy> {
        match self.text("proxy-protocol")? {
            "true" | "v1" => Some(Proxy::V1),
            "v2" => Some(Proxy::V2),
            "false" | "" => None,
            other => {
                let key = format!("{PREFIX}proxy-protocol");
                self.ignored(&key, other, "true, v1, v2 or false");
                None
            }
        }
    }

    pub fn method(&self) -> Given {
        let of_options = || Given {
            value: self.config.load_balancer.method.clone(),
            source: Source::Option("lb-method"),
        };
        let key = format!("{PREFIX}lb-method");
        match self.text("lb-method") {
            None | Some("") => of_options(),
            Some(text) if METHODS.contains(&text) => {
                Given { value: text.to_owned(), source: Source::annotation("lb-method") }
            }
            Some(other) => {
                self.ignored(&key, other, &format!("one of {}", METHODS.join(", ")));
                of_options()
            }
        }
    }

    pub fn timeouts(&mut self) -> Timeouts {
        let mut limit = |key, default| self.number(key, default, 0..=LONGEST, false);
        Timeouts {
            client_data: limit("timeout-client-data", 50_000),
            member_connect: limit("timeout-member-connect", 5_000),
            member_data: limit("timeout-member-data", 50_000),
            tcp_inspect: limit("timeout-tcp-inspect", 0),
        }
    }

    /// Returns how members are checked, if they are.
    pub fn checks(&mut self) -> Option<Checks> {
        let asks = self.flag(MONITOR, self.config.load_balancer.create_monitor);
        asks.then(|| self.times(false))
    }

    /// Returns the checks that `local-monitor` adds to a Service with local traffic. Replaces an
    /// invalid number by its default, so that the Service still gets a load balancer.
    pub fn local_checks(&mut self) -> Option<LocalChecks> {
        let config = &self.config.load_balancer;
        let has_said = matches!(self.text(MONITOR), Some("true" | "false"));
        if has_said || config.create_monitor || config.local_monitor == LocalMonitor::None {
            return None;
        }
        let for_all = config.local_monitor == LocalMonitor::All;
        Some(LocalChecks { checks: self.times(true), for_all })
    }

    fn times(&mut self, is_lenient: bool) -> Checks {
        let config = &self.config.load_balancer;
        let seconds = |time: std::time::Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let mut number = |key, default: i64, range| {
            let number = self.number(key, default, range, is_lenient);
            u32::try_from(number).unwrap_or(u32::MAX)
        };
        let long = 0..=i64::from(i32::MAX);
        Checks {
            delay: number("health-monitor-delay", seconds(config.monitor_delay), long.clone()),
            timeout: number("health-monitor-timeout", seconds(config.monitor_timeout), long),
            max_retries: number(
                "health-monitor-max-retries",
                config.monitor_max_retries.into(),
                1..=10,
            ),
            max_retries_down: number(
                "health-monitor-max-retries-down",
                config.monitor_max_retries_down.into(),
                1..=10,
            ),
        }
    }

    /// Reads tags, which are separated by commas.
    pub fn tags(&mut self, key: &str) -> Vec<String> {
        let text = self.text(key).unwrap_or_default();
        let tags: Vec<String> = text
            .split(',')
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
            .map(str::to_owned)
            .collect();
        let reserved = |tag: &&String| {
            names::is_owner_tag(tag)
                || tag.starts_with(names::DIGEST)
                || tag.starts_with(names::TAKEN_BACK)
                || tag.starts_with(names::PREFIX)
        };
        if let Some(tag) = tags.iter().find(reserved) {
            let what = format!("{tag:?} is a tag that records an owner; choose another one");
            self.problem(key, what);
        }
        if let Some(tag) = tags.iter().find(|tag| tag.chars().count() > 255) {
            let tag = one_line(tag, MAX_VALUE);
            self.problem(key, format!("{tag:?} is too long; a tag has at most 255 characters"));
        }
        tags
    }
}
