use std::sync::Arc;

use async_trait::async_trait;
use ccm_cloud::Instances;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::*;

/// A provider whose settings change when the test says so.
struct Changing(watch::Sender<bool>);

#[async_trait]
impl Cloud for Changing {
    fn name(&self) -> &'static str {
        "changing"
    }

    fn schemes(&self) -> Vec<String> {
        Vec::new()
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Ok(None)
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }

    async fn outdated(&self) -> String {
        self.0.subscribe().wait_for(|is| *is).await.unwrap();
        "region".to_owned()
    }
}

/// How long a process goes on after its settings have changed. `back`: the seconds after which they
/// are changed back, and changed again.
async fn goes_on(leads: bool, back: Option<(u64, u64)>) -> u64 {
    let cloud = Changing(watch::Sender::new(false));
    let begin = Instant::now();
    let change = async {
        cloud.0.send_replace(true);
        if let Some((back, again)) = back {
            sleep(Duration::from_secs(back)).await;
            cloud.0.send_replace(false);
            sleep(Duration::from_secs(again)).await;
            cloud.0.send_replace(true);
        }
    };
    tokio::join!(outdated(&cloud, || leads), change);
    begin.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_standby_ends_at_once_and_the_leader_leaves_it_time_to_come_back() {
    assert_eq!(goes_on(false, None).await, 0);
    for _ in 0..20 {
        assert!((60..=90).contains(&goes_on(true, None).await));
    }
    let taken_back = goes_on(true, Some((10, 200))).await;
    assert!((270..=300).contains(&taken_back), "{taken_back} s: the count begins again");
}
