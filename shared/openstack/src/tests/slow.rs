//! Tests a cloud that takes longer for a login and a look at Nova than a call has.

use std::time::Duration;

use ccm_cloud::ErrorKind;

use super::cloud::{Move, Rig};

#[tokio::test(start_paused = true)]
async fn what_a_call_has_begun_is_there_for_the_next_one() {
    let rig = Rig::new();
    for host in ["keystone", "nova"] {
        rig.cloud.always(host, Some(Move::Slow(Duration::from_millis(600))));
    }
    // The login, the look at the versions and the request take 1.8 s, and no call has more than one
    // second.
    assert_eq!(rig.nova(1).await.unwrap_err().kind, ErrorKind::Timeout);
    rig.nova(1).await.unwrap();
    rig.nova(1).await.unwrap();
    assert_eq!((rig.cloud.logins(), rig.cloud.count("nova", "/v2.1/")), (1, 1 + 2));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_takes_longer_than_any_call_ends_all_the_same() {
    let rig = Rig::new();
    rig.nova(10).await.unwrap();
    let looks = |rig: &Rig| rig.cloud.seen().iter().filter(|seen| seen.path == "/v2.1/").count();
    let other = Rig::new();
    other.cloud.next("nova", [Move::Slow(Duration::from_secs(5))]);
    for _ in 0..4 {
        assert_eq!(other.nova(1).await.unwrap_err().kind, ErrorKind::Timeout);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    other.nova(1).await.unwrap();
    assert_eq!((looks(&rig), looks(&other)), (1, 1));
}
