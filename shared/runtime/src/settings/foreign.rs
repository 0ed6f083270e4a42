//! Flags of existing manifests that have no effect in this program. They are accepted with a
//! warning, so that a manifest of cloud-controller-manager works.

use ccm_settings::Foreign;

use crate::programs;

/// Returns all flags without effect, the siblings' flags first.
pub(crate) fn all() -> impl Iterator<Item = &'static Foreign> {
    programs::flags().chain(UPSTREAM)
}

const UNUSED_UPSTREAM: &str = "it has no effect in cloud-controller-manager either";
const ONE_CONTROLLER: &str = "this program runs one controller";
const OPEN_PAGES: &str = "the HTTP pages require no token; restrict access by --bind-address=127.0.0.1 or a NetworkPolicy";
const OWN_TLS: &str = "the HTTP pages use the defaults of the TLS library";
const NO_MIGRATION: &str = "leader migration is not supported; switch this controller off in the other controller manager first";
const NO_WEBHOOKS: &str = "Quartet does not have webhooks";
const GO_ONLY: &str = "it configures the Go runtime";
const NOT_BUFFERED: &str = "logs are written to stderr without a buffer";

/// Flags that only cloud-controller-manager has.
const UPSTREAM: &[Foreign] = &[
    Foreign::value("controller-start-interval", ONE_CONTROLLER),
    Foreign::switch("use-service-account-credentials", ONE_CONTROLLER),
    Foreign::value("external-cloud-volume-plugin", UNUSED_UPSTREAM),
    Foreign::value("node-sync-period", UNUSED_UPSTREAM),
    Foreign::switch("allow-untagged-cloud", "the provider validates the cluster's name"),
    Foreign::value("kube-api-content-type", "requests are JSON"),
    Foreign::value("feature-gates", "Quartet does not have feature gates"),
    Foreign::switch("enable-leader-migration", NO_MIGRATION),
    Foreign::value("leader-migration-config", NO_MIGRATION),
    Foreign::value(
        "cert-dir",
        "no certificates are generated; use --tls-cert-file and --tls-private-key-file",
    ),
    Foreign::value("tls-cipher-suites", OWN_TLS),
    Foreign::value("tls-curve-preferences", OWN_TLS),
    Foreign::value("tls-sni-cert-key", "one certificate is served; use --tls-cert-file"),
    Foreign::switch("disable-http2-serving", "the HTTP pages are HTTP/1.1"),
    Foreign::value("http2-max-streams-per-connection", "the HTTP pages are HTTP/1.1"),
    Foreign::switch("permit-port-sharing", "the port is not shared"),
    Foreign::switch("permit-address-sharing", "the address is not shared"),
    Foreign::value("authentication-kubeconfig", OPEN_PAGES),
    Foreign::switch("authentication-skip-lookup", OPEN_PAGES),
    Foreign::value("authentication-token-webhook-cache-ttl", OPEN_PAGES),
    Foreign::switch("authentication-tolerate-lookup-failure", OPEN_PAGES),
    Foreign::value("client-ca-file", OPEN_PAGES),
    Foreign::value("requestheader-client-ca-file", OPEN_PAGES),
    Foreign::value("requestheader-allowed-names", OPEN_PAGES),
    Foreign::value("requestheader-username-headers", OPEN_PAGES),
    Foreign::value("requestheader-group-headers", OPEN_PAGES),
    Foreign::value("requestheader-extra-headers-prefix", OPEN_PAGES),
    Foreign::value("requestheader-uid-headers", OPEN_PAGES),
    Foreign::value("authorization-kubeconfig", OPEN_PAGES),
    Foreign::value("authorization-always-allow-paths", OPEN_PAGES),
    Foreign::value("authorization-webhook-cache-authorized-ttl", OPEN_PAGES),
    Foreign::value("authorization-webhook-cache-unauthorized-ttl", OPEN_PAGES),
    Foreign::value("webhooks", NO_WEBHOOKS),
    Foreign::value("webhook-bind-address", NO_WEBHOOKS),
    Foreign::value("webhook-secure-port", NO_WEBHOOKS),
    Foreign::value("webhook-cert-dir", NO_WEBHOOKS),
    Foreign::value("webhook-tls-cert-file", NO_WEBHOOKS),
    Foreign::value("webhook-tls-private-key-file", NO_WEBHOOKS),
    Foreign::value("webhook-tls-cipher-suites", NO_WEBHOOKS),
    Foreign::value("webhook-tls-curve-preferences", NO_WEBHOOKS),
    Foreign::value("webhook-tls-min-version", NO_WEBHOOKS),
    Foreign::value("webhook-tls-sni-cert-key", NO_WEBHOOKS),
    Foreign::switch("webhook-disable-http2-serving", NO_WEBHOOKS),
    Foreign::switch("profiling", GO_ONLY),
    Foreign::switch("contention-profiling", GO_ONLY),
    Foreign::value("vmodule", "use --log-filter"),
    Foreign::value("log-flush-frequency", NOT_BUFFERED),
    Foreign::switch("log-text-split-stream", NOT_BUFFERED),
    Foreign::switch("log-json-split-stream", NOT_BUFFERED),
    Foreign::value("log-text-info-buffer-size", NOT_BUFFERED),
    Foreign::value("log-json-info-buffer-size", NOT_BUFFERED),
];
