//! The scenarios with real OpenStack services.

use std::{future::Future, pin::Pin};

use anyhow::{Context as _, Result};

use super::rig::Rig;

mod access_rules;
mod balancer_costs;
mod balancer_dual_stack;
mod balancer_facts;
mod balancer_faults;
mod balancer_input;
mod balancer_losses;
mod balancer_options;
mod balancer_owners;
mod balancer_places;
mod balancer_quotas;
mod balancer_truth;
mod credentials;
mod follow;
mod handover;
mod judged;
mod long_lists;
mod names;
mod neutron_alone;
mod other_controller;
mod outages;
mod register;
mod route_limits;
mod routes;
mod spellings;
mod through_proxy;
mod wrong_settings;

/// A scenario: its name and what it does.
pub struct Scenario {
    /// The test's name.
    pub name: &'static str,
    run: fn(Rig) -> Running,
}

type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

impl Scenario {
    /// Runs it.
    pub async fn run(&self, rig: Rig) -> Result<()> {
        (self.run)(rig).await
    }
}

/// Names each function once: it is also the name of the test.
macro_rules! scenarios {
    ($($module:ident::$name:ident),+ $(,)?) => {
        vec![$(Scenario {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: |rig| Box::pin(async move {
                $module::$name(&rig).await.with_context(|| rig.logs())
            }),
        }),+]
    };
}

/// Returns all scenarios.
pub fn all() -> Vec<Scenario> {
    scenarios![
        through_proxy::services_work_through_the_proxy,
        through_proxy::a_held_service_answers_when_it_goes_on,
        through_proxy::each_fault_is_answered_as_configured,
        through_proxy::revoked_credentials_stop_working,
        register::a_node_is_initialised_from_its_server,
        register::nodes_at_once_cost_few_calls,
        follow::a_node_follows_its_server,
        follow::a_node_is_shut_down_started_and_deleted_with_its_server,
        spellings::every_spelling_leads_to_the_server,
        spellings::another_regions_node_stays_where_no_region_is_named,
        names::a_server_in_another_project_is_not_taken,
        names::two_servers_of_one_name_are_reported,
        credentials::a_revoked_token_is_replaced,
        credentials::a_wrong_password_is_reported_and_retried_slowly,
        credentials::a_changed_password_is_used,
        credentials::application_credentials_are_rotated,
        credentials::a_trust_is_enough_and_its_end_is_reported,
        credentials::a_token_serves_until_it_ends,
        credentials::a_missing_configuration_is_reported,
        access_rules::the_rules_of_the_page_are_enough,
        access_rules::a_missing_rule_is_reported_and_nothing_is_half_done,
        handover::a_wrong_file_changes_nothing_and_a_right_one_hands_over,
        outages::a_frozen_nova_is_waited_for,
        outages::keystone_is_gone_at_start,
        outages::keystone_goes_and_comes_back,
        neutron_alone::a_frozen_neutron_is_waited_for,
        neutron_alone::a_neutron_that_errs_is_waited_for,
        neutron_alone::incomplete_neutron_lists_remove_no_address,
        judged::no_fault_deletes_a_node,
        judged::a_frozen_nova_deletes_no_node,
        judged::the_wrong_project_deletes_no_node,
        judged::the_node_of_a_deleted_server_leaves,
        long_lists::nodes_of_a_list_that_is_too_long_are_initialised_and_judged,
        routes::nodes_have_routes_and_what_others_made_stays,
        route_limits::a_port_without_port_security_needs_no_pair,
        route_limits::a_whole_list_is_written_with_its_revision,
        route_limits::used_up_quotas_are_named,
        route_limits::routes_of_many_nodes_cost_few_calls,
    ]
    .into_iter()
    .chain(balancers())
    .collect()
}

/// Returns the scenarios about load balancers.
fn balancers() -> Vec<Scenario> {
    scenarios![
        balancer_facts::each_write_below_a_load_balancer_moves_its_updated_at,
        balancer_facts::a_pending_load_balancer_refuses_writes_and_is_found_by_tags,
        balancer_costs::six_services_from_creation_to_deletion,
        balancer_costs::a_node_joins_ten_load_balancers,
        balancer_costs::answers_are_lost_and_leaders_killed,
        balancer_options::protocols_and_checks_are_as_asked_for,
        balancer_options::clients_numbers_and_names_are_as_asked_for,
        balancer_places::addresses_are_as_asked_for,
        balancer_dual_stack::addresses_of_both_families,
        balancer_faults::octavia_is_away_for_two_minutes,
        balancer_faults::one_that_is_stuck_delays_no_other,
        balancer_faults::a_failed_one_is_repaired_and_keeps_its_address,
        balancer_faults::a_storm_of_conflicts_ends_well,
        balancer_faults::a_failed_floating_ip_is_tried_again,
        balancer_faults::one_that_is_deleted_by_others_comes_back,
        balancer_losses::one_that_lists_lack_is_not_made_again,
        balancer_losses::a_failed_one_with_a_listener_of_others_stays,
        balancer_quotas::each_used_up_quota_is_named,
        balancer_quotas::a_subnet_without_room_is_named,
        balancer_truth::services_older_than_the_first_node_get_its_members,
        balancer_truth::local_traffic_is_checked,
        balancer_truth::an_upgrade_changes_nothing,
        balancer_owners::two_clusters_of_one_name_share_a_project,
        balancer_owners::what_the_other_controller_made_is_adopted_and_could_go_back,
        other_controller::it_recreates_nothing_when_it_is_started_again,
        balancer_input::each_wrong_annotation_is_named,
        balancer_input::a_listener_of_others_on_a_port_is_named_and_stays,
        balancer_input::the_rules_of_the_page_are_enough,
        balancer_input::members_go_on_while_the_configuration_is_wrong,
        wrong_settings::one_wrong_setting_changes_no_load_balancer,
    ]
}
