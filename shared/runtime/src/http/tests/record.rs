//! The page `/record`, with records that repeat the question.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use ccm_base::At;
use http::{Method, StatusCode, header};

use super::{answer, get, pages};
use crate::records::{Record, RecordQuery, RecordSize};

pub(super) struct Spoken {
    line: &'static str,
    lines: usize,
    written: Arc<AtomicUsize>,
}

impl Record for Spoken {
    fn write(&self, asked: &RecordQuery, to: &mut dyn Write) -> io::Result<()> {
        for _ in 0..self.lines {
            writeln!(to, "{} {:?} {}", self.line, asked.name, asked.anonymous)?;
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn kept(&self) -> RecordSize {
        RecordSize { bytes: 100, events: 7, since: Some(At::default()) }
    }
}

pub(super) fn spoken(line: &'static str, lines: usize) -> (Arc<Spoken>, Arc<AtomicUsize>) {
    let written = Arc::<AtomicUsize>::default();
    (Arc::new(Spoken { line, lines, written: Arc::clone(&written) }), written)
}

#[tokio::test]
async fn records_follow_one_another() {
    let pages = pages(&[]);
    let (status, text) = get(&pages, "/record").await;
    assert_eq!((status, &*text), (404, "no record is kept: see --record-bytes\n"));
    pages.records.add(spoken("routes", 1).0);
    pages.records.add(spoken("blocks", 2).0);
    let check = async |query: &str, asked: &str| {
        let (status, text) = get(&pages, &format!("/record{query}")).await;
        let expected = format!("routes {asked}\nblocks {asked}\nblocks {asked}\n");
        assert_eq!((status, text), (200, expected), "{query}");
    };
    check("", "None false").await;
    check("?name=default%2Fshop", "Some(\"default/shop\") false").await;
    check("?anonymous=true&name=a", "Some(\"a\") true").await;
    check("?anonymous", "None true").await;
    check("?anonymous=yes", "None true").await;
    check("?anonymous=false", "None false").await;
    check("?%61nonymous=true", "None true").await;
    for query in ["?Anonymous=true", "?name=a&anonymus"] {
        let (status, text) = get(&pages, &format!("/record{query}")).await;
        assert_eq!(status, 400, "{query}: {text}");
        assert!(text.contains("has the parameters name and anonymous, not \""), "{text}");
    }
    let page = answer(&pages, &Method::GET, "/record");
    assert_eq!(page.headers()[header::CONTENT_TYPE], "application/jsonl");
    let metrics = get(&pages, "/metrics").await.1;
    assert!(metrics.contains("ccm_record_bytes 200.0\n"), "{metrics}");
    assert!(metrics.contains("ccm_record_events 14.0\n"), "{metrics}");
}

#[tokio::test]
async fn few_clients_read_at_a_time_and_nothing_is_written_for_nobody() {
    let pages = pages(&[]);
    let (long, written) = spoken("long", 100_000);
    pages.records.add(long);
    let status = || answer(&pages, &Method::GET, "/record");
    let (first, second) = (status(), status());
    assert_eq!(first.status(), StatusCode::OK);
    let busy = get(&pages, "/record").await;
    assert_eq!(busy, (429, "others read the record: try again\n".to_owned()));
    drop((first, second));
    assert_eq!(answer(&pages, &Method::POST, "/record").status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(written.load(Ordering::Relaxed), 0);
    let (status, text) = get(&pages, "/record").await;
    assert_eq!((status, text.lines().count()), (200, 100_000));
}
