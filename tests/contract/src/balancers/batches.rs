//! The possible items of a call.

use ccm_cloud::{CloudError, ErrorKind, Unwanted};

use crate::{
    Wish,
    lab::{Place, call, change, changed, gather, members, namesake, nodes, unwanted, wanted, with},
};

/// Returns true for each item that was carried out. The others must be refused for their owner.
fn done<T>(answers: Vec<Result<T, CloudError>>) -> Vec<bool> {
    let each = answers.into_iter().map(|answer| match answer {
        Ok(_) => true,
        Err(error) => {
            let (kind, about) = (error.kind, error.subject.as_deref());
            assert_eq!((kind, about), (ErrorKind::Invalid, Some("owner")), "{error}");
            assert!(!error.maybe_done, "{error}");
            false
        }
    });
    each.collect()
}

/// The order of two items of one owner would decide.
pub(crate) async fn an_owner_has_one_item_in_a_call(place: Place) {
    let lab = place.lab().await;
    let web = wanted("web");
    let elsewhere = changed(&web, |front_end| front_end.owner = namesake("web"));
    let other = changed(&web, |front_end| front_end.ports.truncate(1));
    let all = [web.clone(), other, wanted("api"), web.clone(), elsewhere];
    assert_eq!(done(lab.ensure_all(&all).await), [true, false, true, false, true]);
    let id = lab.only("web").id;
    assert_eq!(lab.only("web").ports.len(), 2, "the first one counts");
    lab.settle(&web).await;

    let changes = [4, 5].map(|number| change(&web, &id, members(&[number], &[1, 2, 3, 4, 5])));
    let answers = gather(lab.balancers().set_members(&changes, call()), 2).await;
    assert_eq!(done(answers), [true, false]);
    lab.members_set(&web, &id, members(&[4], &[1, 2, 3, 5])).await;
    assert_eq!(lab.only("web").nodes, nodes(&[4]));

    // A preview changes nothing, so each item has its answer.
    let answers = gather(lab.balancers().preview(&all, call()), all.len()).await;
    assert_eq!(done(answers), [true; 5]);
    // A duplicate and the load balancer itself are also two items of one owner.
    let duplicate = Unwanted { duplicate: true, ..unwanted(&web, Some(&id)) };
    let both = [unwanted(&web, None), duplicate];
    let answers = gather(lab.balancers().delete(&both, call()), 2).await;
    assert_eq!(done(answers), [true, false]);
}

pub(crate) async fn an_item_affects_no_others(place: Place) {
    let lab = place.lab().await;
    let all = [wanted("a"), lab.wishes(&wanted("b"), Wish::Wrong), wanted("c")];
    let answers = lab.ensure_all(&all).await;
    assert_eq!(answers[1].as_ref().unwrap_err().kind, ErrorKind::Invalid);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert_eq!(lab.side().rows().len(), 2);
    let id = lab.settle(&all[2]).await.id;
    let four = members(&[4], &[]);
    let changes = [change(&all[0], "none", four.clone()), change(&all[2], &id, four)];
    let answers = gather(lab.balancers().set_members(&changes, call()), 2).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind, ErrorKind::NotFound);
    assert!(answers[1].is_ok(), "{answers:?}");
}

pub(crate) async fn what_a_provider_writes_is_no_configuration(place: Place) {
    let lab = place.lab().await;
    let traits = lab.balancers().traits();
    let web = wanted("web");
    let written = lab.settle(&web).await.annotations;
    assert!(written.contains_key(&traits.id_annotation.clone().unwrap()), "{written:?}");
    for key in written.keys() {
        assert!(!traits.configures(key), "{key}");
        let error = lab.ensure(&with(&web, (key, "x"))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{key}: {error}");
        // A key is not a prefix of other keys.
        let longer = format!("{key}-format");
        let is_read = traits.annotations.iter().any(|start| key.starts_with(start.as_str()));
        assert_eq!(traits.configures(&longer), is_read, "{longer}");
    }
}
