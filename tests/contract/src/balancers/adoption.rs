//! Load balancers that were made for the Service by another controller.

use ccm_cloud::{ClusterId, Depth, ErrorKind, LoadBalancer, Progress, Scope, Title, Wanted};

use crate::{
    Whose, Wish,
    lab::{Lab, Place, addresses, call, changed, namesake, owner, tcp, wanted},
};

fn adopting(wanted: &Wanted, id: &str) -> Wanted {
    Wanted { adopt: Some(id.to_owned()), ..wanted.clone() }
}

/// Returns a complete load balancer with another controller's record.
async fn made_by_another(lab: &Lab, web: &Wanted, rebuilt: bool) -> LoadBalancer {
    let made = lab.settle(web).await;
    lab.side().disown(&made.id, rebuilt);
    lab.restart();
    lab.written();
    made
}

async fn adopts(place: &Place, rebuilt: bool) {
    for wish in [Wish::Internal, Wish::Floating] {
        let lab = place.lab().await;
        let web = lab.wishes(&wanted("web"), wish);
        let made = made_by_another(&lab, &web, rebuilt).await;
        let before = lab.row(&made.id);
        let shown = lab.shown(&made.id, Depth::Summary).await;
        assert!(matches!(shown.title, Title::Adoptable { .. }), "{shown:?}");
        // The record says for which Service it was made.
        assert_eq!(shown.owner.unwrap().to_string(), "default/web");
        assert_eq!(lab.list(Scope::Cluster, Depth::Summary).await.load_balancers, []);
        let elsewhere = ClusterId { name: "other".to_owned(), uid: "other".to_owned() };
        let list = lab.balancers().list(&elsewhere, Scope::All, Depth::Summary, call()).await;
        assert_eq!(list.unwrap().load_balancers[0].title, Title::Foreign);

        let adopting = adopting(&web, &made.id);
        assert!(!lab.preview(&adopting).await.unwrap().is_empty());
        assert_eq!(lab.written(), 0);
        let adopted = lab.settle(&adopting).await;
        assert!(lab.written() <= 2, "the record of the load balancer, and of its address");
        assert_eq!((adopted.title, adopted.owner), (Title::Ours, Some(owner("web"))));
        assert_eq!((&adopted.id, adopted.ingress), (&made.id, made.ingress));
        let after = lab.only("web");
        assert_eq!((after.ports, after.nodes), (before.ports, before.nodes));
        assert_eq!((after.rest, after.addresses), (before.rest, before.addresses));
        // The call is repeated, and made as for an ordinary load balancer, by this and another
        // process.
        for wanted in [&adopting, &web] {
            for _ in 0..2 {
                assert!(matches!(lab.ensure(wanted).await, Ok(Progress::Done(_))));
                lab.restart();
            }
        }
        assert_eq!(lab.written(), 0);
    }
}

pub(crate) async fn adoption_changes_only_the_record(place: Place) {
    adopts(&place, false).await;
    // With other changes to follow, the first call records the owner and nothing else.
    let lab = place.lab().await;
    let made = made_by_another(&lab, &wanted("web"), false).await;
    let before = lab.row(&made.id);
    let more = changed(&wanted("web"), |it| it.ports.push(tcp(8080)));
    let adopting = adopting(&more, &made.id);
    assert!(matches!(lab.ensure(&adopting).await, Ok(Progress::InProgress(_))));
    assert_eq!(lab.written(), 1);
    let after = lab.only("web");
    assert_eq!((after.ports, after.rest), (before.ports, before.rest));
    let settled = lab.settle(&adopting).await;
    assert_eq!(lab.only("web").ports.len(), 3);
    assert_eq!(addresses(&settled), addresses(&made));
}

pub(crate) async fn adoption_from_a_rebuilt_cluster_changes_only_the_record(place: Place) {
    adopts(&place, true).await;
    let lab = place.lab().await;
    let id = made_by_another(&lab, &wanted("web"), true).await.id;
    assert_eq!(lab.shown(&id, Depth::Summary).await.owner, Some(namesake("web")));
}

pub(crate) async fn only_what_was_made_for_it_is_adopted(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    for whose in [Whose::Person, Whose::Neighbour("db"), Whose::Shared("api", "db")] {
        let id = lab.side().stranger(whose);
        let error = lab.ensure(&adopting(&web, &id)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{whose:?}: {error}");
        assert_eq!(lab.preview(&adopting(&web, &id)).await, Err(error));
    }
    let error = lab.ensure(&adopting(&web, "none")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    assert_eq!(lab.written(), 0);
    let [first, second] = [0, 1].map(|_| lab.side().stranger(Whose::Older("web")));
    assert!(lab.preview(&adopting(&web, &first)).await.is_ok());
    assert!(matches!(lab.ensure(&adopting(&web, &first)).await, Ok(Progress::InProgress(_))));
    // An owner has one load balancer, not a second one by adoption.
    let error = lab.ensure(&adopting(&web, &second)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
}
