//! The provider contract, proven on the simulated cloud twice: called in this process, and
//! served over the external protocol on each of its transports. Both must give the same
//! answers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod rig;
mod sameness;
mod suite;

use rig::Way;

macro_rules! on_every_way {
    ($($case:ident),* $(,)?) => {
        mod directly { $(#[tokio::test] async fn $case() { super::suite::$case(super::Way::Direct).await; })* }
        mod over_a_unix_socket { $(#[tokio::test] async fn $case() { super::suite::$case(super::Way::Unix).await; })* }
        mod over_tcp { $(#[tokio::test] async fn $case() { super::suite::$case(super::Way::Tcp).await; })* }
        mod over_tls { $(#[tokio::test] async fn $case() { super::suite::$case(super::Way::MutualTls).await; })* }
    };
}

on_every_way![
    claims_by_scheme,
    finds_by_id_then_uuid_then_name,
    returns_all_fields_of_an_instance,
    answers_each_node_by_itself_and_in_order,
    large_lookups_are_split_and_counted,
    lists_page_by_page,
    a_truncated_list_is_no_proof,
    errors_arrive_whole,
    a_deadline_holds,
    a_slow_cloud_is_waited_for,
    malformed_instances_affect_no_others,
    an_empty_cloud_answers,
];
