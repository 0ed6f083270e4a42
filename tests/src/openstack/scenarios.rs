//! The scenarios with real OpenStack services.

use std::{future::Future, pin::Pin};

use anyhow::Result;

use super::rig::Rig;

mod access_rules;
mod credentials;
mod follow;
mod judged;
mod long_lists;
mod names;
mod neutron_alone;
mod outages;
mod register;
mod routes;
mod spellings;
mod through_proxy;

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
            run: |rig| Box::pin(async move { $module::$name(&rig).await }),
        }),+]
    };
}

/// All scenarios.
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
    ]
}
