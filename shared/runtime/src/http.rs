//! The admin pages over HTTP: `/healthz`, `/livez`, `/readyz`, `/metrics`, `/configz`, `/plan`,
//! `/record`.
//!
//! Plain HTTP/1.1 by default, so that a scraper needs neither a token nor a CA; TLS with
//! files that are reloaded when they change. The pages are read-only and show no secrets;
//! those with details of settings and objects respond on loopback only.

mod host;
mod pages;
mod scrapes;
mod server;
mod settings;
mod tls;

pub use pages::Pages;
pub use scrapes::Scrapes;
pub use server::{ServeError, Server};
pub(crate) use settings::Served;
pub use settings::{PageSettings, TlsSettings};
pub use tls::TlsError;

#[cfg(test)]
mod tests;
