mod figures;
mod toy;

use std::{fs, io::Write as _, time::Duration};

use ccm_base::{At, clock};
use ccm_runtime::records::{Record as _, RecordQuery, RecordSize};
use jiff::SignedDuration;
use serde_json::Value;

use self::toy::{Effect, Event, Hasty, Toy, World, name, secrets};
use super::{
    Recorder,
    blocks::{BLOCK, WORK},
    replay::{DIFFERS, Replay, SAME, UNREADABLE, folder, replay, run},
};
use crate::machine::Tape as _;

/// A toy that is recorded, at times that the test says.
struct Rig {
    recorder: Recorder<Toy>,
    tape: Recorder<Toy>,
    toy: Toy,
    now: At,
}

impl Rig {
    fn new(bytes: usize, toy: Toy) -> Self {
        let recorder = Recorder::<Toy>::new(bytes);
        let tape = recorder.clone();
        Self { recorder, tape, toy, now: At(Duration::from_secs(1_700_000_000)) }
    }

    fn apply(&mut self, event: Event) -> Vec<Effect> {
        self.now = self.now + Duration::from_millis(1501);
        self.tape.apply(&mut self.toy, event, self.now)
    }

    fn after(bytes: usize, seed: u64, size: usize, events: usize) -> Self {
        let (mut rig, mut world) = (Self::new(bytes, Toy::new(2)), World::new(seed, size));
        for _ in 0..events {
            rig.apply(world.event());
        }
        rig
    }

    fn page(&self, name: Option<&str>, anonymous: bool) -> String {
        let mut page = Vec::new();
        let asked = RecordQuery { name: name.map(str::to_owned), anonymous };
        self.recorder.write(&asked, &mut page).unwrap();
        String::from_utf8(page).unwrap()
    }
}

fn header(page: &str) -> Value {
    serde_json::from_str(page.lines().next().unwrap()).unwrap()
}

fn end(page: &str) -> Value {
    serde_json::from_str::<Value>(page.lines().last().unwrap()).unwrap()["end"].clone()
}

#[track_caller]
fn is_replayed(page: &str) -> usize {
    let report = replay::<Toy>(&mut page.as_bytes());
    assert_eq!(report.code(), SAME, "{report}");
    assert_eq!(u64::try_from(report.events).unwrap(), report.header.events, "{report}");
    report.events
}

#[test]
fn a_record_is_replayed_without_a_difference() {
    let rig = Rig::after(2_000_000, 1, 60, 800);
    let page = rig.page(None, false);
    assert_eq!(is_replayed(&page), 800);
    let header = header(&page);
    assert_eq!((&header["record"], &header["program"]), (&1.into(), &"toy-ccm".into()));
    assert_eq!((&header["was_cut"], &header["events"]), (&false.into(), &800.into()));
    assert_eq!(header["whole_since"], "2023-11-14T22:13:21.501Z");
    assert_eq!(page.matches("\n{\"memory\":").count(), 1);
    assert!(page.contains(r#"{"=":["#), "lists are differences");
    // The memory at the end equals the machine's memory.
    let RecordSize { bytes, events, since } = rig.recorder.kept();
    assert!(bytes < 2_000_000 && events == 800 && since.is_some());
}

#[test]
fn a_door_is_recorded() {
    let recorder = Recorder::<Toy>::new(2_000_000);
    let (door, mut world) = (recorder.door(Toy::new(1)), World::new(10, 5));
    for _ in 0..20 {
        door.clone().apply(world.event());
    }
    let mut page = Vec::new();
    recorder.clone().write(&RecordQuery::default(), &mut page).unwrap();
    assert_eq!(is_replayed(&String::from_utf8(page).unwrap()), 20);
}

/// Memory, events and compressor together stay below the bound, and the rest of the record can be
/// replayed.
#[test]
fn the_oldest_segments_go() {
    let (mut rig, mut world) = (Rig::new(1_000_000, Toy::new(2)), World::new(2, 400));
    let mut most = 0;
    for _ in 0..4_000 {
        rig.apply(world.event());
        let kept = rig.recorder.kept();
        most = most.max(kept.bytes + WORK);
        assert!(kept.bytes + WORK <= 1_000_000 + BLOCK, "{kept:?}");
    }
    assert!(most <= 1_000_000 && most > 800_000, "{most}");
    let page = rig.page(None, false);
    let header = header(&page);
    assert_eq!(header["was_cut"], true);
    let events = is_replayed(&page);
    assert!(events > 300, "{events}");
    assert!(page.matches("{\"segment\":").count() > 1);
    assert_eq!(page.matches("\n{\"memory\":").count(), 1);
}

#[test]
fn another_rule_is_named() {
    let page = Rig::after(2_000_000, 3, 30, 300).page(None, false);
    let report = replay::<Hasty>(&mut page.as_bytes());
    assert_eq!((report.code(), report.events), (DIFFERS, 300));
    let first = &report.differences[0];
    assert!(first.expected.as_ref().unwrap().to_string().contains("the cloud does not list"));
    let got = first.got.as_ref().unwrap().to_string();
    assert!(got.contains("Delete") || got.contains("Held"), "{got}");
    let line = page.lines().nth(first.line - 1).unwrap();
    assert!(line.contains(&format!("{{\"at\":\"{}\"", first.at)), "{line}");
    let shown = report.to_string();
    assert!(shown.contains("\n  expected {") && shown.contains("\n  got      {"), "{shown}");
}

/// The wall clock is set while a record is kept: a replay has the same moments in events and in the
/// memory, and the same texts of moments in effects.
#[test]
fn steps_of_the_clock_do_not_matter() {
    let (mut rig, mut world) = (Rig::new(2_000_000, Toy::new(3)), World::new(4, 40));
    for part in [0, 3_600_000, -7_200_123] {
        clock::while_set_by(SignedDuration::from_millis(part), || {
            for _ in 0..300 {
                rig.apply(world.event());
            }
        });
    }
    let page = rig.page(None, false);
    assert_eq!(page.matches("{\"segment\":").count(), 3);
    assert!(page.contains("deleted at"), "a text of a moment is in an effect");
    for here in [0, 5_000, -86_400_000] {
        clock::while_set_by(SignedDuration::from_millis(here), || is_replayed(&page));
    }
    let object = rig.page(Some(&name(7)), false);
    is_replayed(&object);
    is_replayed(&rig.page(None, true));
}

#[test]
fn a_record_of_one_object_is_replayed_alone() {
    // With a large budget nodes do not depend on each other.
    let (mut rig, mut world) = (Rig::new(2_000_000, Toy::new(1_000_000)), World::new(5, 40));
    for _ in 0..1000 {
        match world.event() {
            Event::Configured { .. } => {}
            event => drop(rig.apply(event)),
        }
    }
    let page = rig.page(Some(&name(7)), false);
    assert_eq!(header(&page)["note"], Value::Null);
    assert_eq!(header(&page)["name"], name(7));
    assert!(is_replayed(&page) > 100);
    assert!(page.contains("Delete") && page.contains(&name(7)));
    let others = (0..40).filter(|number| *number != 7).map(|number| format!("{}\"", name(number)));
    let seen: Vec<_> = others.filter(|other| page.contains(other)).collect();
    assert!(seen.is_empty(), "{seen:?}");
    assert!(page.len() * 5 < rig.page(None, false).len());
    let anonymous = rig.page(Some(&name(7)), true);
    is_replayed(&anonymous);
    assert_ne!(header(&anonymous)["name"], name(7));
    let name = header(&anonymous)["name"].as_str().unwrap().to_owned();
    assert!(anonymous.contains(&format!("{{\"name\":\"{name}\"")), "{name}");
}

/// Nodes share the budget of deletions: without the others this node would have been deleted.
#[test]
fn an_object_that_depends_on_others_has_no_record_of_its_own() {
    let mut rig = Rig::new(2_000_000, Toy::new(1));
    for number in [1, 2] {
        rig.apply(Event::Seen(toy::node(number, 1, 1)));
    }
    rig.apply(Event::Listed { instances: Vec::new() });
    let effects = rig.apply(Event::Passed);
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Held { name, .. } if *name == toy::name(2)))
    );
    let page = rig.page(Some(&name(2)), false);
    let note = header(&page)["note"].as_str().unwrap().to_owned();
    assert!(note.contains("depend on other objects"), "{note}");
    assert!(page.contains(&name(1)), "it is the whole record");
    assert_eq!(is_replayed(&page), 4);
    // The first node does not depend on the others.
    assert_eq!(header(&rig.page(Some(&name(1)), false))["name"], name(1));
}

#[test]
fn an_anonymous_record_has_no_names_and_the_same_decisions() {
    for seed in 0..3 {
        let rig = Rig::after(2_000_000, seed, 60, 300);
        let whole = rig.page(None, false);
        let page = rig.page(None, true);
        assert_eq!(end(&page)["other_effects"], 0, "{}", end(&page));
        assert_eq!(end(&page)["note"], Value::Null);
        assert_eq!(is_replayed(&page), 300);
        let found: Vec<_> =
            secrets(60).into_iter().filter(|secret| page.contains(secret.as_str())).collect();
        assert!(found.is_empty(), "seed {seed}: {found:?}");
        let [whole, page] = [whole, page].map(|page| {
            let inside = page.matches("\"is_inside\":true").count();
            (inside, page.matches("\"is_inside\":false").count(), page.matches("Delete").count())
        });
        assert_eq!(whole, page);
        assert!(page.0 > 0 && page.1 > 0 && page.2 > 0, "{page:?}");
    }
}

#[test]
fn lines_that_cannot_be_read_are_named() {
    let page = Rig::after(2_000_000, 7, 10, 50).page(None, false);
    let check = |old: &str, new: &str, expected: &str| {
        assert!(page.contains(old), "{old}");
        let report = replay::<Toy>(&mut page.replacen(old, new, 1).as_bytes());
        assert_eq!(report.code(), UNREADABLE, "{report}");
        assert!(report.to_string().contains(expected), "{expected}: {report}");
        report.events
    };
    assert_eq!(
        check("{\"record\":1", "{\"record\":9", "the format 9 is unknown; this version reads 1"),
        50
    );
    let unknown = "line 3 cannot be read: this version does not know .colour";
    assert_eq!(check("{\"memory\":{", "{\"memory\":{\"colour\":\"red\",", unknown), 50);
    assert_eq!(check("{\"Gone\":", "{\"Left\":", "unknown variant `Left`, expected one of"), 49);
    let unknown = "does not know .Gone.colour";
    assert_eq!(check("{\"Gone\":{", "{\"Gone\":{\"colour\":1,", unknown), 50);
    assert_eq!(check("{\"Gone\":{\"name\":", "{\"Gone\":{\"nom\":", "missing field `name`"), 49);
    assert_eq!(
        check("\"deletions\":", "\"delitions\":", "the memory: missing field `deletions`"),
        0
    );
    let end = page.lines().last().unwrap();
    assert_eq!(check(end, "", "the record has no end: it is not complete"), 50);
    let event = page.lines().nth(20).unwrap().to_owned() + "\n";
    assert_eq!(check(&event, "", "the record has 49 events, not 50"), 49);
    assert_eq!(check(end, "what", "line 54 cannot be read: expected value"), 50);
}

#[test]
fn a_file_is_replayed_by_the_machine_of_its_program() {
    let folder_of_records = tempfile::tempdir().unwrap();
    let file = folder_of_records.path().join("one.jsonl");
    let page = Rig::after(2_000_000, 8, 10, 100).page(None, false);
    let write = |text: &str| fs::File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
    let machines: [(&str, Replay); 2] =
        [("toy-ccm", replay::<Toy>), ("hasty-ccm", replay::<Hasty>)];
    let check = |code: u8, expected: &str| {
        let mut shown = Vec::new();
        let ended = run(&machines, &file, &mut shown).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(ended == code && shown.contains(expected), "{ended} {expected}: {shown}");
        let outcome = folder(&machines, folder_of_records.path());
        assert_eq!(outcome.is_ok(), code == SAME, "{outcome:?}");
    };
    write(&page);
    check(SAME, "events: 100; effects that differ: 0; lines not read: 0");
    let hasty = page.replacen("toy-ccm", "hasty-ccm", 1);
    write(&hasty);
    check(DIFFERS, "expected");
    // The record is of a program with two machines.
    write(&(page.clone() + &hasty));
    check(DIFFERS, "effects that differ: 0");
    write(&page.replacen("toy-ccm", "other-ccm", 1));
    check(UNREADABLE, "a record of other-ccm: this version replays toy-ccm, hasty-ccm");
    write("no record");
    check(UNREADABLE, "line 1 cannot be read: expected ident");
    write("");
    check(UNREADABLE, "no line");
    assert_eq!(folder(&machines, &folder_of_records.path().join("none")), Ok(0));
}

/// A memory that does not fit leaves an empty record, which says so. It is not tried again at each
/// event.
#[test]
fn a_memory_that_does_not_fit_is_said() {
    let mut rig = Rig::new(1_000_000, Toy::new(1));
    let mut dice = toy::Dice(9);
    let instances = (0..30_000).map(|number| {
        let mut random = || dice.roll(1 << 31);
        let id = format!("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
        toy::Instance { id: id.clone(), name: id, ..toy::instance(number) }
    });
    let listed = Event::Listed { instances: instances.collect() };
    rig.apply(listed.clone());
    for _ in 0..200 {
        rig.apply(Event::Passed);
    }
    let page = rig.page(None, false);
    let note = header(&page)["note"].as_str().unwrap().to_owned();
    assert!(note.contains("one event does not fit"), "{note}");
    assert_eq!(header(&page)["whole_since"], Value::Null);
    assert_eq!(is_replayed(&page), 0);
    rig.now = rig.now + Duration::from_secs(600);
    rig.apply(Event::Passed);
    let note = header(&rig.page(None, false))["note"].as_str().unwrap().to_owned();
    assert!(note.contains("what the program remembers does not fit"), "{note}");
    assert_eq!(rig.recorder.kept(), RecordSize::default());
    // The machine's memory is small again.
    rig.apply(Event::Listed { instances: Vec::new() });
    rig.now = rig.now + Duration::from_secs(601);
    rig.apply(Event::Passed);
    let page = rig.page(None, false);
    assert_eq!((is_replayed(&page), &header(&page)["note"]), (1, &Value::Null));
    assert_eq!(header(&page)["was_cut"], true);
}
