//! The list of all cases, and how they run.

use std::{process::ExitCode, sync::Arc};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::{Need, Stage, balancers, lab::Place, machines, routes};

/// A promise of every provider.
struct Case {
    name: &'static str,
    needs: &'static [Need],
    run: fn(Place) -> BoxFuture<'static, ()>,
}

macro_rules! cases {
    ($module:ident: $($case:ident $([$($need:ident),*])?),* $(,)?) => {
        fn $module() -> Vec<Case> {
            vec![$(Case {
                name: concat!(stringify!($module), "::", stringify!($case)),
                needs: &[$($(Need::$need),*)?],
                run: |place| Box::pin($module::$case(place)),
            }),*]
        }
    };
}

cases![machines:
    are_claimed_by_scheme [WholeCloud],
    are_found_by_id_then_uuid_then_name,
    are_answered_each_by_itself_and_in_order,
    that_a_list_lacks_are_not_gone,
    that_cannot_be_read_affect_no_others,
    may_all_be_missing,
];

cases![balancers:
    finds_before_it_creates,
    any_process_continues_after_any_step [Steps],
    previews_what_it_then_does_by_one_change_per_call,
    previews_what_it_then_does_step_by_step [Steps],
    repairs_what_failed_and_keeps_its_addresses,
    what_needs_a_person_is_left_alone [FailsForGood],
    asks_before_it_replaces,
    another_controllers_are_elsewhere [OtherControllers],
    the_state_decides_and_not_the_digest,
    repairs_foreign_writes,
    shows_no_address_before_the_final_one,
    keeps_the_address_of_what_was_deleted_by_others,
    refuses_what_the_cloud_cannot_be,
    a_thin_view_removes_no_member,
    the_last_member_stays,
    members_follow_while_the_configuration_is_wrong,
    a_bad_member_affects_no_others,
    a_change_of_members_answers_with_its_version,
    members_are_shown_by_port,
    an_empty_pool_is_filled,
    what_was_not_seen_is_not_done [HidesEmptyPools],
    an_answer_says_whether_it_has_changed_something,
    why_there_is_no_member_is_said,
    changes_only_what_is_its_owners,
    two_clusters_of_one_name_have_one_each,
    a_proof_says_that_nothing_is_left,
    a_kept_address_outlives_its_load_balancer,
    two_of_one_owner_are_listed_and_one_is_deleted [Twins],
    a_second_one_of_an_owner_is_refused [Fences],
    a_former_leader_is_refused [Fences],
    adoption_changes_only_the_record,
    adoption_from_a_rebuilt_cluster_changes_only_the_record [Rebuilt],
    only_what_was_made_for_it_is_adopted,
    an_owner_has_one_item_in_a_call,
    what_a_provider_writes_is_no_configuration,
    lists_by_scope_and_depth,
    malformed_entries_affect_no_others,
    a_list_that_lacks_one_proves_nothing,
    nothing_is_changed_while_the_cloud_works,
    lost_answers_say_that_they_may_be_done,
    an_error_proves_nothing,
    an_item_affects_no_others,
];

cases![routes:
    changes_may_be_repeated,
    only_what_was_seen_is_changed,
    a_replacement_moves_a_destination,
    a_destination_may_have_several_targets [SeveralTargets],
    a_destination_has_one_change_in_a_call,
    owners_are_recorded_and_kept [RouteOwners],
    foreign_routes_are_shown_and_stay,
    a_table_that_has_changed_is_not_written [TableVersions],
    a_full_table_takes_what_fits,
    a_target_is_gone_with_a_proof,
    an_empty_answer_proves_no_target_gone,
    many_targets_are_asked_in_parts,
    a_lost_answer_may_be_done,
    a_route_affects_no_others,
    defects_are_shown_and_repaired,
    a_former_leader_changes_no_route [Fences],
];

/// Returns the whole `main` of a test target: all cases on these stages.
pub fn main(stages: &[Arc<dyn Stage>]) -> ExitCode {
    let all = |stage: &Arc<dyn Stage>| {
        [machines(), balancers(), routes()]
            .into_iter()
            .flatten()
            .map(|case| trial(case, Arc::clone(stage)))
            .collect::<Vec<_>>()
    };
    let trials = stages.iter().flat_map(all).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(case: Case, stage: Arc<dyn Stage>) -> Trial {
    let name = format!("{}::{}", stage.name(), case.name);
    Trial::ignorable_test(name, move || {
        let lacking = case.needs.iter().find_map(|need| stage.lacks(*need));
        if let Some(why) = lacking {
            return Ok(Completion::ignored_with(why));
        }
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(stage.is_paused());
        let runtime = builder.build().map_err(|error| Failed::from(error.to_string()))?;
        runtime.block_on((case.run)(Place { stage, needs: case.needs }));
        Ok(Completion::Completed)
    })
}
