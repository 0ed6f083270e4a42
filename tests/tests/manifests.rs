//! Every base, overlay and combination of components of `manifests/`, rendered by the real
//! kubectl, applied to a real API server with strict validation, and checked by the programs'
//! own parser. Needs `QUARTET_CLUSTER=real`; otherwise one line says that the tests are
//! skipped.

use std::{env, process::ExitCode, sync::Arc};

use anyhow::Result;
use ccm_tests::manifests::Tree;
use libtest_mimic::{Arguments, Failed, Trial};

#[path = "manifests/apply.rs"]
mod apply;
#[path = "manifests/content.rs"]
mod content;
#[path = "manifests/pods.rs"]
mod pods;
#[path = "manifests/rig.rs"]
mod rig;

use rig::Rig;

/// A test of the whole tree, or of one folder.
type Test = fn(&Rig, &str) -> Result<()>;

const WHOLE: [(&str, Test); 8] = [
    ("rendered_files_are_current", content::rendered_files_are_current),
    ("every_choice_is_right_and_accepted", content::every_choice_is_right_and_accepted),
    ("a_third_controller_is_a_folder", content::a_third_controller_is_a_folder),
    ("an_operators_own_settings_win", content::an_operators_own_settings_win),
    ("strict_means_strict", apply::strict_means_strict),
    ("one_controller_goes_and_the_other_stays", apply::one_goes_and_the_other_stays),
    ("without_server_side_apply_too", apply::without_server_side_apply_too),
    ("probes_answer_on_leader_and_standby", pods::probes_answer_on_leader_and_standby),
];

const EACH: [(&str, Test); 3] = [
    ("is_applied_twice", apply::is_applied_twice),
    ("is_started_by_its_program", pods::is_started_by_its_program),
    ("is_restricted", pods::is_restricted),
];

fn main() -> Result<ExitCode> {
    if env::var("QUARTET_CLUSTER").as_deref() != Ok("real") {
        eprintln!("skipped: the manifests need a real API server; set QUARTET_CLUSTER=real");
        return Ok(ExitCode::SUCCESS);
    }
    let mut arguments = Arguments::from_args();
    // They share the cluster's kube-system.
    arguments.test_threads = Some(1);
    let rig = Arc::new(Rig::new(Tree::read()?)?);
    let mut trials = Vec::new();
    for (name, test) in WHOLE {
        trials.push(trial(name.to_owned(), &rig, test, String::new()));
    }
    for folder in rig.folders() {
        for (name, test) in EACH {
            trials.push(trial(format!("{folder}::{name}"), &rig, test, folder.clone()));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(rig) = Arc::into_inner(rig) {
        rig.stop()?;
    }
    Ok(conclusion.exit_code())
}

fn trial(name: String, rig: &Arc<Rig>, test: Test, folder: String) -> Trial {
    let rig = Arc::clone(rig);
    Trial::test(name, move || {
        test(&rig, &folder).map_err(|error| Failed::from(format!("{error:#}")))
    })
}
