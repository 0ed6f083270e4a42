//! The client stack against servers that misbehave.
//!
//! In-process servers run under paused time; real sockets are used where the connection
//! itself matters. kube 4.2, below this stack, has traps that would each cause an outage;
//! these tests guard against them:
//!
//! | trap in kube 4.2 | what would happen | test |
//! |---|---|---|
//! | gzip decodes only the first member of a stream | every watch of Kubernetes >= 1.37 fails | [`encoding`] |
//! | a refused watch is parsed as events | 410 is retried without end | [`refusals`] |
//! | a pretty-printed refusal is one decode error per line | the reason is lost | [`refusals`] |
//! | no read time-out | a call on a silent connection never returns | [`deadlines`] |
//! | 15 retries by default, writes and watches too | an error surfaces after 6 minutes | [`retries`] |
//! | a dead watch is noticed after 296 s | stale stores | `client::tests::connections_notice_a_dead_peer` |
//! | a long `Retry-After` overflows the clock | the process panics | [`retries`], `client::retry_after` |
//! | bodies that cannot be parsed are logged whole | secrets in logs | [`refusals`] |
//! | one queue per client | a limiter that waits stops all requests | [`limits`] |
//! | connections are shared, user agents are all the same | a lease waits for a list | [`connections`] |
//! | client certificates are read once | requests fail once they expire | [`certificates`] |

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certificates;
mod clock;
mod connections;
mod deadlines;
mod encoding;
mod limits;
mod measures;
mod refusals;
mod retries;
mod support;
