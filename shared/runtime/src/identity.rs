//! The identity of a program.

use ccm_cloud::Capability;

/// The identity of a program. Constants, because manifests and dashboards rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The binary's name, for instance `node-ccm`. The default name of its Lease is the same.
    pub binary: &'static str,
    /// Upstream's canonical name of the controller, for instance `cloud-node-controller`.
    pub controller: &'static str,
    /// Upstream's short name, for instance `cloud-node`.
    pub alias: &'static str,
    /// The default port of its HTTP pages.
    pub port: u16,
    /// The component of its events, same as upstream's.
    pub event_component: &'static str,
}

/// A controller of cloud-controller-manager, as `--controllers` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Upstream's canonical name.
    pub name: &'static str,
    /// Upstream's short name.
    pub alias: &'static str,
}

/// A cloud capability that a program needs, depending on its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Without it the program idles.
    Required(Capability),
    /// Without it the program has fewer functions.
    Optional(Capability),
    /// Without it the program has fewer functions and does other work, so it must first know
    /// whether the cloud offers it.
    Known(Capability),
}

impl Need {
    /// Returns the capability.
    pub const fn capability(self) -> Capability {
        match self {
            Self::Required(it) | Self::Optional(it) | Self::Known(it) => it,
        }
    }
}

/// The version that `--version` prints.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of this build, which `make build` sets; `unknown` in a build without it.
pub const COMMIT: &str = or_unknown(option_env!("QUARTET_GIT_COMMIT"));

/// Replaces an empty text, which `make build` sets outside of a repository.
const fn or_unknown(commit: Option<&'static str>) -> &'static str {
    match commit {
        Some(commit) if !commit.is_empty() => commit,
        _ => "unknown",
    }
}

impl Identity {
    /// Returns its controller's names.
    pub(crate) const fn as_controller(&self) -> Controller {
        Controller { name: self.controller, alias: self.alias }
    }

    /// Returns the first line of `--help`.
    pub(crate) fn summary(&self) -> String {
        format!(
            "The {} of Quartet, the Kubernetes cloud controllers as separate programs.",
            self.controller
        )
    }

    /// Returns the user agent for all servers: `node-ccm/0.1.0 (linux/amd64)`.
    pub fn user_agent(&self) -> String {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        format!("{}/{VERSION} ({}/{architecture})", self.binary, std::env::consts::OS)
    }
}

#[cfg(test)]
mod tests {
    use super::or_unknown;

    #[test]
    fn a_build_without_a_repository_has_an_unknown_commit() {
        assert_eq!(or_unknown(Some("3f2c9a1b7d04")), "3f2c9a1b7d04");
        assert_eq!(or_unknown(Some("")), "unknown");
        assert_eq!(or_unknown(None), "unknown");
    }
}
