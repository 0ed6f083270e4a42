//! The tests of route-ccm on a cluster: the simulated API server, or with
//! `QUARTET_CLUSTER=real` real ones.

use std::process::ExitCode;

use ccm_runtime::programs::ROUTE_CCM;
use ccm_tests::suite::{self, Story, Suite, Work};

mod brake;
mod cloud_faults;
mod common;
mod gate;
mod ipam;
mod life;
mod observe;
mod of_itself;
mod policies;
mod story;
mod takeover;
mod work;

fn main() -> anyhow::Result<ExitCode> {
    suite::main(Suite {
        program: ROUTE_CCM,
        scenarios: ccm_tests::scenarios! {
            BOTH:
                life::nodes_get_their_routes_and_lose_them,
                life::a_node_with_another_address_moves_its_route,
                life::a_restart_writes_nothing,
                brake::a_shrunken_list_deletes_few_routes,
                brake::no_node_at_all_deletes_no_route,
                of_itself::a_kubelet_takes_nothing_from_others,
                observe::an_observer_shows_what_a_leader_does,
                ipam::a_node_gets_its_cidr_its_route_and_its_condition,
                ipam::a_full_range_and_another_allocator_are_reported,
                takeover::an_old_store_costs_no_route,
                takeover::an_old_store_gives_no_pod_cidr_twice;
            SIMULATED:
                life::a_killed_leader_leaves_no_gap,
                brake::killed_leaders_share_one_budget,
                cloud_faults::one_that_fails_and_one_that_hangs_delay_no_other,
                ipam::a_frozen_leader_gives_no_block_twice,
                ipam::without_routes_no_call_is_made,
                gate::without_routes_and_cidrs_it_is_idle,
                gate::a_provider_without_routes_is_no_failure,
                gate::a_wrong_cluster_cidr_is_refused;
            REAL:
                policies::what_is_taken_back_costs_a_write_a_minute;
        },
        work: Work {
            launch: work::launch,
            step: |env, round| Box::pin(work::step(env, round)),
            is_undone: |env, _| Box::pin(work::is_undone(env)),
        },
        story: Story { launch: story::launch, play: |stage| Box::pin(story::play(stage)) },
    })
}
