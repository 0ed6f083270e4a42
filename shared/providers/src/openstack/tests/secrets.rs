//! What must not be seen.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter};

use super::cloud::{Move, PASSWORD, Rig, config};
use crate::openstack::client::Service;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn neither_token_nor_password_reaches_the_log_or_an_error() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(log.clone())
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let mut told = format!("{:?}", config(PASSWORD));
    let rig = Rig::new();
    // A service that repeats what it was sent.
    let echo = |what: &str| format!("{{\"badRequest\": {{\"message\": \"what is {what}?\"}}}}");
    rig.cloud.next("keystone", [Move::text(400, &echo(PASSWORD))]);
    told += &rig.nova(10).await.unwrap_err().to_string();
    assert!(told.contains("what is ***?"), "{told}");
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    rig.nova(10).await.unwrap();
    rig.cloud.next("nova", [Move::text(400, &echo("gAAAA-token-1"))]);
    told += &rig.nova(10).await.unwrap_err().to_string();
    rig.cloud.next("neutron", [Move::text(401, &echo("gAAAA-token-1")), Move::Cut]);
    rig.get(Service::Network, 10).await.unwrap();
    rig.cloud.set_password("other");
    rig.cloud.revoke();
    told += &rig.nova(10).await.unwrap_err().to_string();
    told += &String::from_utf8_lossy(&log.0.lock());
    assert!(told.contains("no token from Keystone"), "{told}");
    assert!(!told.contains(PASSWORD) && !told.contains("gAAAA"), "{told}");
}
