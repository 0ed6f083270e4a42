//! The page `/explain`.

use http::{Method, Request, StatusCode, header};

use super::{answer, get, pages, to};
use crate::explain::Explanation;

#[tokio::test]
async fn an_object_is_explained_as_text_and_as_json() {
    let pages = pages(&[]);
    let (status, text) = get(&pages, "/explain?name=a").await;
    assert_eq!((status, &*text), (400, "this program does not explain objects\n"));
    pages.explanations.add("toy", "Node", |name| Explanation::fine(format!("{name:?} runs")));
    let page = "Node a/b, toy: fine\ncause:   \"a/b\" runs\nfix:     nothing has to be done\n";
    for query in ["name=a%2Fb", "kind=Node&name=a/b", "kind=nodes&name=a/b&format=text"] {
        assert_eq!(
            get(&pages, &format!("/explain?{query}")).await,
            (200, page.to_owned()),
            "{query}"
        );
    }
    let (status, json) = get(&pages, "/explain?name=a&format=json").await;
    assert!(status == 200 && json.contains("\"state\": \"fine\""), "{json}");
    let request = to(&Method::GET, "/explain?name=a").header(header::ACCEPT, "application/json");
    let answer_of = pages.answer(&request.body(()).unwrap(), true);
    assert_eq!(answer_of.headers()[header::CONTENT_TYPE], "application/json");
    for (query, why) in [
        ("", "name an object: "),
        ("?kind=Node", "name an object: "),
        ("?kind=Pod&name=a", "kind=Node\n"),
    ] {
        let (status, text) = get(&pages, &format!("/explain{query}")).await;
        assert!(status == 400 && text.contains(why), "{query}: {text}");
    }
    assert_eq!(
        answer(&pages, &Method::POST, "/explain?name=a").status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[test]
fn it_is_open_to_whom_the_plan_is_open() {
    let mut pages = pages(&[]);
    let request =
        Request::get("/explain?name=a").header(header::HOST, "10.0.0.1").body(()).unwrap();
    assert_eq!(pages.answer(&request, false).status(), StatusCode::FORBIDDEN);
    pages.open.push("plan".to_owned());
    assert_eq!(pages.answer(&request, false).status(), StatusCode::BAD_REQUEST);
}
