//! Flags that existing manifests carry and this program has no use for. They are
//! accepted with a warning, so that a manifest of cloud-controller-manager works.

use ccm_settings::Foreign;

const fn value(flag: &'static str, why: &'static str) -> Foreign {
    Foreign { flag, switch: false, why }
}

const fn switch(flag: &'static str, why: &'static str) -> Foreign {
    Foreign { flag, switch: true, why }
}

const NODE: &str = "it belongs to node-ccm";
const SERVICE: &str = "it belongs to service-ccm";
const ROUTE: &str = "it belongs to route-ccm";
const LIFECYCLE: &str = "it belongs to lifecycle-ccm";
const UNUSED_UPSTREAM: &str = "it has no effect in cloud-controller-manager either";
const ONE_CONTROLLER: &str = "this program runs one controller";
const OPEN_PAGES: &str =
    "the HTTP pages ask for no token; bind them to 127.0.0.1 or fence them with a NetworkPolicy";
const OWN_TLS: &str = "the HTTP pages use the TLS library's own choice";
const NO_WEBHOOKS: &str = "there are no webhooks";
const GO_ONLY: &str = "it is about the Go runtime";
const NOT_BUFFERED: &str = "logs are written to stderr at once";

/// The settings of all four programs that are not common, and everything that only
/// cloud-controller-manager has. A program's own settings take precedence.
pub(crate) const FOREIGN: &[Foreign] = &[
    value("concurrent-node-syncs", NODE),
    value("concurrent-node-status-updates", NODE),
    value("node-status-update-frequency", NODE),
    value("concurrent-service-syncs", SERVICE),
    value("cluster-cidr", ROUTE),
    switch("configure-cloud-routes", ROUTE),
    value("route-reconciliation-period", ROUTE),
    value("node-monitor-period", LIFECYCLE),
    value("controller-start-interval", ONE_CONTROLLER),
    switch("use-service-account-credentials", ONE_CONTROLLER),
    switch("allocate-node-cidrs", UNUSED_UPSTREAM),
    value("cidr-allocator-type", UNUSED_UPSTREAM),
    value("external-cloud-volume-plugin", UNUSED_UPSTREAM),
    value("node-sync-period", UNUSED_UPSTREAM),
    switch("allow-untagged-cloud", "the provider checks the cluster's name itself"),
    value("kube-api-content-type", "requests are JSON"),
    value("feature-gates", "there are no feature gates"),
    value(
        "leader-migration-config",
        "leader migration is not supported; see --leader-elect-resource-name",
    ),
    value(
        "cert-dir",
        "certificates are not made up; use --tls-cert-file and --tls-private-key-file",
    ),
    value("tls-cipher-suites", OWN_TLS),
    value("tls-curve-preferences", OWN_TLS),
    value("tls-sni-cert-key", "one certificate is served; use --tls-cert-file"),
    switch("disable-http2-serving", "the HTTP pages are HTTP/1.1"),
    value("http2-max-streams-per-connection", "the HTTP pages are HTTP/1.1"),
    switch("permit-port-sharing", "the port is not shared"),
    switch("permit-address-sharing", "the address is not shared"),
    value("authentication-kubeconfig", OPEN_PAGES),
    switch("authentication-skip-lookup", OPEN_PAGES),
    value("authentication-token-webhook-cache-ttl", OPEN_PAGES),
    switch("authentication-tolerate-lookup-failure", OPEN_PAGES),
    value("client-ca-file", OPEN_PAGES),
    value("requestheader-client-ca-file", OPEN_PAGES),
    value("requestheader-allowed-names", OPEN_PAGES),
    value("requestheader-username-headers", OPEN_PAGES),
    value("requestheader-group-headers", OPEN_PAGES),
    value("requestheader-extra-headers-prefix", OPEN_PAGES),
    value("requestheader-uid-headers", OPEN_PAGES),
    value("authorization-kubeconfig", OPEN_PAGES),
    value("authorization-always-allow-paths", OPEN_PAGES),
    value("authorization-webhook-cache-authorized-ttl", OPEN_PAGES),
    value("authorization-webhook-cache-unauthorized-ttl", OPEN_PAGES),
    value("webhooks", NO_WEBHOOKS),
    value("webhook-bind-address", NO_WEBHOOKS),
    value("webhook-secure-port", NO_WEBHOOKS),
    value("webhook-cert-dir", NO_WEBHOOKS),
    value("webhook-tls-cert-file", NO_WEBHOOKS),
    value("webhook-tls-private-key-file", NO_WEBHOOKS),
    value("webhook-tls-cipher-suites", NO_WEBHOOKS),
    value("webhook-tls-curve-preferences", NO_WEBHOOKS),
    value("webhook-tls-min-version", NO_WEBHOOKS),
    value("webhook-tls-sni-cert-key", NO_WEBHOOKS),
    switch("webhook-disable-http2-serving", NO_WEBHOOKS),
    switch("profiling", GO_ONLY),
    switch("contention-profiling", GO_ONLY),
    value("vmodule", "use --log-filter"),
    value("log-flush-frequency", NOT_BUFFERED),
    switch("log-text-split-stream", NOT_BUFFERED),
    switch("log-json-split-stream", NOT_BUFFERED),
    value("log-text-info-buffer-size", NOT_BUFFERED),
    value("log-json-info-buffer-size", NOT_BUFFERED),
];
