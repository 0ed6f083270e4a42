//! The tests of service-ccm on a cluster: the simulated API server, or with
//! `QUARTET_CLUSTER=real` real ones.

use std::process::ExitCode;

use ccm_runtime::programs::SERVICE_CCM;
use ccm_tests::suite::{self, Story, Suite, Work};

mod budgets;
mod cloud_faults;
mod common;
mod life;
mod members;
mod neighbours;
mod restore;
mod shown;
mod story;
mod takeover;
mod work;

fn main() -> anyhow::Result<ExitCode> {
    suite::main(Suite {
        program: SERVICE_CCM,
        scenarios: ccm_tests::scenarios! {
            BOTH:
                life::a_service_gets_its_address_and_loses_it,
                life::a_service_that_changes_its_type_is_left_clean,
                life::a_restart_writes_nothing,
                members::members_follow_the_nodes,
                members::a_thin_view_empties_no_load_balancer,
                neighbours::each_controller_touches_its_own,
                restore::a_namespace_is_restored_by_its_owner,
                shown::an_address_of_the_cluster_is_shown_only_if_it_is_allowed,
                takeover::an_old_store_costs_no_member_and_no_load_balancer;
            SIMULATED:
                members::members_follow_the_labels_of_nodes,
                shown::annotations_of_the_provider_wait_for_a_word_of_the_operator,
                members::a_node_that_joins_between_two_leaders_becomes_a_member,
                life::a_class_that_is_not_served_is_left_alone,
                life::a_wrong_service_is_reported_and_its_members_follow,
                life::what_is_deleted_in_the_cloud_is_created_again,
                life::a_wrong_service_is_deleted_by_its_annotations,
                life::an_observer_shows_what_the_cloud_would_change,
                budgets::ten_killed_leaders_share_their_budgets,
                life::a_leader_deletes_an_orphan_and_an_observer_does_not,
                cloud_faults::one_that_hangs_and_one_that_fails_delay_no_other,
                cloud_faults::a_cloud_that_takes_its_time_is_polled_by_one_list,
                cloud_faults::a_deletion_needs_proof,
                cloud_faults::refused_load_balancers_turn_the_line_of_the_cloud;
        },
        work: Work {
            launch: work::launch,
            step: |env, round| Box::pin(work::step(env, round)),
            is_undone: |env, grant| Box::pin(work::is_undone(env, grant)),
        },
        story: Story { launch: common::quick, play: |stage| Box::pin(story::play(stage)) },
    })
}
