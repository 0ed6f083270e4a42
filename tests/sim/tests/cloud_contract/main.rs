//! The provider contract, proven on the simulated cloud twice: called in this process, and
//! served over the external protocol on each of its transports. Both must give the same
//! answers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod balancers;
mod rig;
mod routes;
mod sameness;
mod suite;

use rig::Way;

macro_rules! by {
    ($way:ident, $name:ident, $suite:path, $($case:ident),*) => {
        mod $name {
            use $suite as suite;
            $(#[tokio::test] async fn $case() { suite::$case(crate::Way::$way).await; })*
        }
    };
}

macro_rules! on_every_way {
    ($suite:path: $($case:ident),* $(,)?) => {
        by!(Direct, directly, $suite, $($case),*);
        by!(Unix, over_a_unix_socket, $suite, $($case),*);
        by!(Tcp, over_tcp, $suite, $($case),*);
        by!(MutualTls, over_tls, $suite, $($case),*);
    };
}

on_every_way![crate::suite:
    claims_by_scheme,
    finds_by_id_then_uuid_then_name,
    returns_all_fields_of_an_instance,
    answers_each_node_by_itself_and_in_order,
    large_lookups_are_split_and_counted,
    lists_page_by_page,
    a_provider_without_a_list,
    a_truncated_list_is_no_proof,
    errors_arrive_whole,
    a_deadline_holds,
    a_slow_cloud_is_waited_for,
    malformed_instances_affect_no_others,
    an_empty_cloud_answers,
];

mod load_balancers {
    on_every_way![crate::balancers:
        finds_before_it_creates,
        any_process_continues_after_any_step,
        makes_one_change_per_call,
        previews_what_it_then_does,
        repairs_what_failed,
        asks_before_it_replaces,
        a_provider_that_does_not_ask_replaces,
        another_controllers_are_elsewhere,
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
        what_was_not_seen_is_not_done,
        an_answer_says_whether_it_has_changed_something,
        why_there_is_no_member_is_said,
        changes_only_what_is_its_owners,
        a_proof_says_that_nothing_is_left,
        a_kept_address_outlives_its_load_balancer,
        two_of_one_owner_are_listed_and_one_is_deleted,
        a_former_leader_is_refused,
        adoption_changes_only_the_record,
        an_owner_has_one_item_in_a_call,
        what_a_provider_writes_is_no_configuration,
        lists_by_scope_and_depth,
        pages_are_counted,
        malformed_entries_affect_no_others,
        a_provider_without_list_and_digests,
        nothing_is_changed_while_the_cloud_works,
        lost_answers_say_that_they_may_be_done,
        an_item_affects_no_others,
        errors_of_items_arrive_whole,
    ];
}

mod route_tables {
    on_every_way![crate::routes:
        changes_may_be_repeated,
        only_what_was_seen_is_changed,
        a_destination_may_have_several_targets,
        a_replacement_is_one_step_where_the_cloud_has_it,
        a_destination_has_one_change_in_a_call,
        owners_are_recorded_and_kept,
        targets_are_of_the_clouds_kind,
        a_former_leader_changes_no_route,
        foreign_routes_are_shown,
        tables_are_read_page_by_page,
        a_table_that_has_changed_is_not_written,
        a_full_table_takes_what_fits,
        a_batch_is_one_call,
        a_target_is_gone_with_a_proof,
        an_empty_answer_proves_no_target_gone,
        a_target_affects_no_others,
        many_targets_are_asked_in_parts,
        a_lost_answer_may_be_done,
        a_route_affects_no_others,
        errors_about_routes_arrive_whole,
        defects_are_shown_and_repaired,
        an_overtaken_change_is_busy,
    ];
}
