//! The HTTP pages: `/healthz`, `/livez`, `/readyz`, `/metrics`, `/configz`,
//! `/plan`.
//!
//! Plain HTTP/1.1 by default, so that a scraper needs neither a token nor a CA; TLS
//! with files that are read again when they change. The pages show no secrets and
//! change nothing; those with details of settings and objects answer on loopback only.

mod pages;
mod server;
mod settings;
mod tls;

pub use pages::Pages;
pub use server::{ServeError, Server};
pub(crate) use settings::Served;
pub use settings::{PageSettings, TlsSettings};
pub use tls::TlsError;

#[cfg(test)]
mod tests;
