//! Tests the client against a cloud that is played in memory, with paused time.

pub mod access_rules;
mod answers;
mod calls;
pub mod cloud;
pub mod credentials;
mod login;
mod octavia;
mod pauses;
mod replaced;
mod secrets;
mod slow;

/// Returns a configuration, with which nothing is reached.
pub fn config() -> super::config::Config {
    cloud::config(cloud::PASSWORD)
}
