//! Connections to the API server, to OpenStack and to an external provider, and connections of
//! clients to a server of this process.
//!
//! | module | what it holds |
//! |---|---|
//! | `connect`, `stream` | [`Outgoing`] opens connections: TCP, proxy, TLS, and the time limit of them together |
//! | `incoming` | [`Incoming`] accepts connections, bounds their number and ends them in order |
//! | `proxy` | [`Proxies`] chooses the proxy that leads to a server |
//! | `tls` | [`client_tls()`]: which certificates are accepted and which one is shown |
//! | `pem` | [`PemFile`]: certificates and keys from files, for clients and servers |
//! | `handshake` | [`handshake()`] finds out if a server speaks TLS |
//! | `answers` | [`AnswerMemory`] bounds the memory of all answers that are being received |
//! | `pool` | [`pool()`] keeps connections for the next request |

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
