//! Outgoing connections: to the API server, to OpenStack and to an external provider.
//!
//! | module | what it holds |
//! |---|---|
//! | [`Outgoing`] | opens connections: TCP, proxy, TLS, and the time limit of them together |
//! | [`Proxies`] | which proxy leads to a server |
//! | [`ClientTls`] | which certificates are accepted and which one is shown |
//! | [`PemFile`] | certificates and keys from files, for clients and servers |
//! | [`pool()`] | keeps connections for the next request |

mod connect;
mod pem;
mod pool;
mod proxy;
mod stream;
mod tls;

pub use connect::{Connector, Outgoing, Versions};
pub use pem::{PemError, PemFile, identity};
pub use pool::pool;
pub use proxy::{Proxies, UnfitProxy};
pub use stream::Stream;
pub use tls::{ClientTls, TlsError, system_roots};
