//! Tests that objects of others stay, and that a list without a row proves nothing.

use ccm_cloud::{ErrorKind, Progress, Scope, Unwanted, Wanted};
use serde_json::json;

use super::rig::{Rig, wanted};

/// A floating IP that is attached to something else by now is not deleted.
#[tokio::test]
async fn what_another_one_uses_by_now_stays() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let unwanted = rig.unwanted(&web);
    rig.remove(&id);
    rig.cloud.world.lock().floating.ips[0]["port_id"] = json!("a server's");
    assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::Done(_))));
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
}

#[tokio::test]
async fn a_list_that_lacks_a_row_proves_nothing() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let unwanted = rig.unwanted(&web);
    rig.cloud.world.lock().octavia.balancers[0]["created_at"] = json!(7);
    for known in [Some(id.clone()), None] {
        let known_web = Wanted { known: known.clone(), ..web.clone() };
        assert_eq!(rig.ensure(&known_web).await.unwrap_err().kind, ErrorKind::Malformed);
        let unwanted = Unwanted { known, ..unwanted.clone() };
        assert_eq!(rig.delete(&unwanted).await.unwrap_err().kind, ErrorKind::Malformed);
    }
    assert_eq!(rig.list(Scope::Cluster, ccm_cloud::Depth::Summary).await.malformed.len(), 1);
    assert_eq!(rig.rows("balancers").len(), 1);
}
