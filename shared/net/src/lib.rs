//! Connections to the API server, to OpenStack and to an external provider, and connections of
//! clients to a server of this process.
//!
//! | module | what it holds |
//! |---|---|
//! | [`Outgoing`] | opens connections: TCP, proxy, TLS, and the time limit of them together |
//! | [`Incoming`] | accepts connections, bounds their number and ends them in order |
//! | [`Proxies`] | which proxy leads to a server |
//! | [`client_tls()`] | which certificates are accepted and which one is shown |
//! | [`PemFile`] | certificates and keys from files, for clients and servers |
//! | [`handshake()`] | whether a server speaks TLS |
//! | [`AnswerMemory`] | bounds the memory of all answers that are being received |
//! | [`pool()`] | keeps connections for the next request |

mod answers;
mod connect;
mod handshake;
mod incoming;
mod pem;
mod pool;
mod proxy;
mod stream;
mod tls;

pub use answers::{AnswerMemory, Room};
pub use connect::{Connector, Outgoing, Versions};
pub use handshake::{Handshake, handshake};
pub use incoming::{Accepted, Incoming, Peer, until};
pub use pem::{PemError, PemFile, identity};
pub use pool::pool;
pub use proxy::{Proxies, UnfitProxy};
pub use stream::Stream;
pub use tls::{TlsError, client_tls, system_roots};
