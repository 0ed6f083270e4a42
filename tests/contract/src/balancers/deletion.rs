//! Deletions are proven, and addresses may stay.

use ccm_cloud::{ErrorKind, Owner, Progress, ProofMethod, Unwanted};

use crate::{
    Wish,
    lab::{Place, addresses, changed, owner, unwanted, wanted},
};

pub(crate) async fn a_proof_says_that_nothing_is_left(place: Place) {
    let lab = place.lab().await;
    let web = lab.wishes(&wanted("web"), Wish::Floating);
    let other = lab.settle(&lab.wishes(&wanted("other"), Wish::Floating)).await;
    for (is_known, method) in [(true, ProofMethod::ById), (false, ProofMethod::ByOwner)] {
        for by_hand in [false, true] {
            let id = lab.settle(&web).await.id;
            if by_hand {
                lab.side().remove(&id);
            }
            lab.written();
            let unwanted = unwanted(&web, is_known.then_some(&id));
            let mut calls = 0;
            let proof = loop {
                let answer = lab.delete(&unwanted).await.unwrap();
                assert!(lab.side().written().balancers <= 1, "one step per call");
                match answer {
                    Progress::Done(proof) => break proof,
                    Progress::InProgress(_) => calls += 1,
                    other => panic!("neither done nor in progress: {other:?}"),
                }
                assert!(calls <= 20, "it ends");
            };
            assert_eq!(proof.method, method);
            let names = if is_known { &*id } else { "default/web" };
            assert!(proof.evidence.contains(names), "{proof:?}");
            assert_eq!(lab.rows_of("web"), []);
            assert_eq!(lab.side().floating(), [(addresses(&other)[0], true)]);
            lab.only("other");
            let again = lab.delete(&unwanted).await.unwrap();
            assert!(matches!(again, Progress::Done(_)) && lab.written() == 0);
        }
    }
}

/// The address stays if the setting asks for it, the Service is unknown, or the Service names it.
pub(crate) async fn a_kept_address_outlives_its_load_balancer(place: Place) {
    for case in ["setting", "unknown", "address", "asked for"] {
        let lab = place.lab().await;
        let plain = lab.wishes(&wanted("web"), Wish::Floating);
        let mut web = plain.clone();
        if case == "asked for" {
            web = changed(&web, |it| it.address = Some(lab.side().choice()));
        }
        let shown = addresses(&lab.settle(&web).await);
        assert_eq!(lab.side().floating(), [(shown[0], true)]);
        // The cloud records that a Service asked for an address.
        let mut keeping = unwanted(&plain, None);
        match case {
            "setting" => keeping = unwanted(&lab.wishes(&plain, Wish::Keep), None),
            "unknown" => keeping.settings = None,
            "address" => keeping.address = Some(shown[0]),
            _ => {}
        }
        lab.deleted(&keeping).await;
        assert_eq!(lab.side().floating(), [(shown[0], false)], "{case}");
        lab.written();
        let again = lab.delete(&keeping).await.unwrap();
        assert!(matches!(again, Progress::Done(_)) && lab.written() == 0, "{case}");
        // Another Service must not get the address; the next Service of the same name may.
        let asks = |owner: Owner| {
            changed(&plain, |it| (it.owner, it.address) = (owner.clone(), Some(shown[0])))
        };
        let other = asks(owner("api"));
        let error = lab.ensure(&other).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{case}: {error}");
        assert_eq!(lab.preview(&other).await, Err(error));
        let next = asks(Owner { uid: "uid-next".to_owned(), ..owner("web") });
        assert_eq!(addresses(&lab.settle(&next).await), shown, "{case}");
        assert_eq!(lab.ensure(&other).await.unwrap_err().kind, ErrorKind::Conflict);
        // This Service has asked for the address, so the address stays again.
        let gone = Unwanted { address: None, ..unwanted(&next, None) };
        lab.deleted(&gone).await;
        assert_eq!(lab.side().floating(), [(shown[0], false)], "{case}");
    }
}
