//! The cloud is another project, which has other machines with the same names.

use super::*;

#[tokio::test(start_paused = true)]
async fn nodes_stay_as_they_are_while_the_cloud_is_another_project() {
    let whole = Whole::start(&["--node-status-update-frequency=1m"]).await;
    let names: Vec<_> = (0..4).map(|number| whole.add_node(number)).collect();
    for name in &names {
        whole.initialised(name).await;
    }
    whole.process.lose_project(&whole.cloud);
    whole.cloud.faults().clear();
    for number in 0..4 {
        let id = SimInstance::numbered(number).id;
        whole.cloud.update(&id, |instance| {
            instance.addresses[0].address = format!("10.200.0.{number}");
            instance.zone = Some("of-the-other-project".to_owned());
        });
    }
    let late = whole.add_node(4);
    let (before, calls) = (whole.writes(), whole.cloud.calls());
    sleep(Duration::from_secs(2)).await;
    assert!(whole.process.is_changed());
    sleep(Duration::from_hours(6)).await;
    assert_eq!((whole.writes(), whole.cloud.calls()), (before, calls));
    assert!(whole.is_tainted(&late));

    whole.process.approve_project(&whole.cloud);
    whole.initialised(&late).await;
    // The metric follows within a second.
    sleep(Duration::from_secs(2)).await;
    assert!(!whole.process.is_changed());
}
