//! Every base, overlay and combination of components of `manifests/`, rendered by the real
//! kubectl, applied to a real API server with strict validation, and checked by the programs'
//! own parser.

use std::sync::Arc;

use anyhow::Result;
use ccm_tests::manifests::Tree;
use libtest_mimic::{Failed, Trial};
use parking_lot::Mutex;

mod apply;
mod content;
mod guard;
mod namespace;
mod pods;
mod policies;
mod rig;

use rig::Rig;

/// A test of the whole tree, or of one folder.
type Test = fn(&Rig, &str) -> Result<()>;

const WHOLE: [(&str, Test); 19] = [
    ("rendered_files_are_current", content::rendered_files_are_current),
    ("every_choice_is_right_and_accepted", content::every_choice_is_right_and_accepted),
    ("routes_come_with_their_component_alone", content::routes_come_with_their_component_alone),
    ("a_third_controller_is_a_folder", content::a_third_controller_is_a_folder),
    ("an_operators_own_settings_win", content::an_operators_own_settings_win),
    ("strict_means_strict", apply::strict_means_strict),
    ("one_controller_goes_and_the_other_stays", apply::one_goes_and_the_other_stays),
    ("without_server_side_apply_too", apply::without_server_side_apply_too),
    ("the_overlay_of_a_cloud_has_all", content::the_overlay_of_a_cloud_has_all),
    ("programs_move_and_leases_stay", namespace::programs_move_and_leases_stay),
    ("one_namespace_for_all_is_no_conflict", namespace::one_for_all_is_no_conflict),
    ("agents_of_a_node_mark_no_node", guard::agents_of_a_node_mark_no_node),
    ("what_is_not_ours_is_not_guarded", guard::what_is_not_ours_is_not_guarded),
    ("a_tenant_decides_about_its_own_services", guard::a_tenant_decides_about_its_own_services),
    ("leases_are_marked_by_right", guard::leases_are_marked_by_right),
    ("programs_may_be_upgraded_one_by_one", guard::programs_may_be_upgraded_one_by_one),
    ("policies_follow_their_accounts", policies::follow_their_accounts),
    ("a_policy_may_be_opened_for_ready_nodes", policies::may_be_opened_for_ready_nodes),
    ("probes_answer_on_leader_and_standby", pods::probes_answer_on_leader_and_standby),
];

const EACH: [(&str, Test); 3] = [
    ("is_applied_twice", apply::is_applied_twice),
    ("is_started_by_its_program", pods::is_started_by_its_program),
    ("is_restricted", pods::is_restricted),
];

/// All manifests, and the cluster that they share: they write into its kube-system, one after
/// another.
pub struct Manifests {
    tree: Tree,
    rig: Arc<Mutex<Option<Rig>>>,
}

impl Manifests {
    /// Creates the rig, whose cluster starts with the first test that runs.
    pub fn new() -> Result<Self> {
        Ok(Self { tree: Tree::read()?, rig: Arc::default() })
    }

    /// Returns the tests.
    pub fn trials(&self) -> Vec<Trial> {
        let whole = WHOLE.into_iter().map(|(name, test)| (name.to_owned(), test, String::new()));
        let each = self.tree.folders().into_iter().flat_map(|folder| {
            EACH.map(|(name, test)| (format!("{folder}::{name}"), test, folder.clone()))
        });
        whole.chain(each).map(|(name, test, folder)| self.trial(&name, test, folder)).collect()
    }

    fn trial(&self, name: &str, test: Test, folder: String) -> Trial {
        let (tree, shared) = (self.tree.clone(), Arc::clone(&self.rig));
        Trial::test(format!("manifests::{name}"), move || {
            let run = || {
                let mut shared = shared.lock();
                let rig = match shared.take() {
                    Some(rig) => rig,
                    None => Rig::new(tree)?,
                };
                test(shared.insert(rig), &folder)
            };
            run().map_err(|error| Failed::from(format!("{error:#}")))
        })
    }

    /// Ends the cluster.
    pub fn stop(self) -> Result<()> {
        let rig = self.rig.lock().take();
        rig.map_or(Ok(()), Rig::stop)
    }
}
