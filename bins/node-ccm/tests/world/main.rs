//! The tests of node-ccm on a cluster: the simulated API server, or with `QUARTET_CLUSTER=real`
//! real ones.

use std::process::ExitCode;

use ccm_runtime::programs::NODE_CCM;
use ccm_tests::suite::{self, Story, Suite, Work};

mod brake;
mod cloud_faults;
mod initialise;
mod keep_true;
mod leadership;
mod observe;
mod policies;
mod rights;
mod server_faults;
mod story;
mod word;
mod work;

fn main() -> anyhow::Result<ExitCode> {
    suite::main(Suite {
        program: NODE_CCM,
        scenarios: ccm_tests::scenarios! {
            BOTH:
                initialise::a_new_node_becomes_schedulable,
                initialise::a_burst_costs_two_writes_a_node_and_few_cloud_calls,
                initialise::concurrent_writes_of_the_kubelet_are_kept,
                keep_true::a_restart_writes_nothing_but_the_lease,
                word::the_id_of_another_machine_is_held,
                leadership::a_frozen_and_a_killed_leader_are_replaced,
                observe::the_leaders_steps_are_the_plan_of_node_ccm;
            SIMULATED:
                initialise::foreign_nodes_and_foreign_taints_are_left_alone,
                initialise::an_illegal_label_is_dropped_with_an_event,
                initialise::a_refused_node_ip_is_reported_until_it_is_corrected,
                keep_true::a_changed_instance_changes_its_node,
                keep_true::a_manually_edited_label_is_restored,
                word::addresses_of_a_kubelet_are_set_back_and_use_no_budget,
                word::a_kubelet_forges_no_label_of_the_cloud,
                brake::another_address_for_all_ready_nodes_is_held_until_approved,
                brake::the_sixth_within_the_hour_is_held_by_the_next_leader_as_well,
                cloud_faults::cloud_errors_are_reported_and_retried,
                cloud_faults::a_cloud_that_is_down_at_start_is_not_ready,
                server_faults::a_lost_response_to_a_write_is_harmless,
                rights::a_missing_right_is_named_until_it_is_granted;
            REAL:
                policies::what_is_taken_back_costs_a_write_a_minute,
                server_faults::the_program_survives_an_api_server_restart,
                server_faults::a_frozen_api_server_ends_the_leader_and_nothing_is_lost;
        },
        work: Work {
            launch: leadership::quick,
            step: |env, round| Box::pin(work::step(env, round)),
            is_undone: |env, _| Box::pin(work::is_undone(env)),
        },
        story: Story { launch: story::launch, play: |stage| Box::pin(story::play(stage)) },
    })
}
