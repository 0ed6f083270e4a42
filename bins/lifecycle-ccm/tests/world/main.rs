//! The tests of lifecycle-ccm on a cluster: the simulated API server, or with
//! `QUARTET_CLUSTER=real` real ones.

use std::process::ExitCode;

use ccm_runtime::programs::LIFECYCLE_CCM;
use ccm_tests::{
    scenarios::{quick_lifecycle, with_short_terms},
    suite::{self, Story, Suite, Work},
};

mod lifecycle;
mod lifecycle_breaker;
mod lifecycle_cases;
mod lifecycle_edges;
mod lifecycle_pressure;
mod observe;
mod story;
mod takeover;
mod work;

fn main() -> anyhow::Result<ExitCode> {
    suite::main(Suite {
        program: LIFECYCLE_CCM,
        scenarios: ccm_tests::scenarios! {
            BOTH:
                lifecycle::a_gone_node_is_deleted_after_its_confirmation_period,
                lifecycle::the_shutdown_taint_follows_the_machine,
                lifecycle_breaker::an_approval_overrides_the_breaker,
                lifecycle_cases::a_node_registered_anew_is_another_node,
                lifecycle_cases::evidence_of_a_killed_leader_is_dropped,
                observe::the_leaders_steps_are_the_plan_of_lifecycle_ccm,
                takeover::an_old_store_costs_no_node;
            SIMULATED:
                lifecycle::a_mass_outage_deletes_no_node,
                lifecycle::foreign_excluded_and_protected_nodes_stay,
                lifecycle::the_budget_holds_the_rest,
                lifecycle_breaker::cloud_errors_delete_no_node,
                lifecycle_breaker::the_wrong_project_opens_the_breaker,
                lifecycle_cases::evidence_of_a_stopped_leader_is_dropped,
                lifecycle_cases::the_rules_change_without_a_restart,
                lifecycle_cases::a_deletion_in_flight_spares_the_successor,
                lifecycle_cases::the_proof_is_left_on_a_node_that_is_deleted,
                lifecycle_cases::a_refused_deletion_is_reported_and_retried,
                lifecycle_edges::a_node_whose_kubelet_lives_is_kept,
                lifecycle_edges::one_annotation_of_the_lease_approves_a_set,
                lifecycle_pressure::ten_killed_leaders_share_one_budget,
                lifecycle_pressure::deletions_whose_answer_is_lost_stay_within_the_budget,
                lifecycle_pressure::a_conflict_about_the_taint_is_soon_forgotten,
                lifecycle_pressure::a_lowered_budget_stops_what_is_not_yet_sent;
            REAL:
                lifecycle_cases::a_deletion_carries_the_uid;
        },
        work: Work {
            launch: |env| with_short_terms(quick_lifecycle(env)),
            step: |env, round| Box::pin(work::step(env, round)),
            is_undone: |env, grant| Box::pin(work::is_undone(env, grant)),
        },
        story: Story { launch: story::launch, play: |stage| Box::pin(story::play(stage)) },
    })
}
