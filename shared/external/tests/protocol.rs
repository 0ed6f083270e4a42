//! Checks the protocol file: its content, and its agreement with the contract.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

use std::{collections::BTreeSet, fmt::Write as _};

use prost_types::{FileDescriptorProto, field_descriptor_proto::Label};

const FILE: &str = "quartet/cloud/v1/cloud.proto";

fn protocol(folder: &str) -> FileDescriptorProto {
    let files = protox::compile([FILE], [folder]).unwrap();
    files.file.into_iter().find(|file| file.name() == FILE).unwrap()
}

#[test]
fn every_scalar_has_explicit_presence() {
    for message in protocol("proto").message_type {
        for field in &message.field {
            let explicit = field.proto3_optional()
                || field.oneof_index.is_some()
                || field.label() == Label::Repeated
                // Every message has these methods.
                || field.r#type() == prost_types::field_descriptor_proto::Type::Message;
            assert!(explicit, "{}.{} is not optional", message.name(), field.name());
        }
    }
}

/// Returns the methods of a trait, by its source.
fn methods(source: &str, name: &str) -> BTreeSet<String> {
    let (_, body) = source.split_once(&format!("pub trait {name}: ")).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let method = |line: &str| {
        let line = line.strip_prefix("    ")?;
        let line = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        Some(line.split(['(', '<']).next()?.to_owned())
    };
    body.lines().filter_map(method).collect()
}

/// The conversions keep the fields equal: they do not compile if one side has a field that the
/// other side lacks.
#[test]
fn trait_and_protocol_have_the_same_methods() {
    let (describe, health) = ("Provider.Describe", "Provider.Health");
    let pairs = [
        // Traits of the provider are reported once, by `Describe`.
        ("Cloud.name", describe),
        ("Cloud.schemes", describe),
        ("Cloud.identity", describe),
        ("Cloud.instances", describe),
        ("Cloud.load_balancers", describe),
        ("Cloud.routes", describe),
        ("Instances.traits", describe),
        ("LoadBalancers.traits", describe),
        ("Routes.traits", describe),
        ("Cloud.health", health),
        ("Instances.lookup", "Instances.LookupInstances"),
        ("Instances.lookup_each", "Instances.LookupInstances"),
        ("Instances.list", "Instances.ListInstances"),
        ("LoadBalancers.list", "LoadBalancers.ListLoadBalancers"),
        ("LoadBalancers.ensure", "LoadBalancers.EnsureLoadBalancers"),
        ("LoadBalancers.preview", "LoadBalancers.PreviewLoadBalancers"),
        ("LoadBalancers.set_members", "LoadBalancers.SetMembers"),
        ("LoadBalancers.delete", "LoadBalancers.DeleteLoadBalancers"),
        ("Routes.list", "Routes.ListRoutes"),
        ("Routes.apply", "Routes.ApplyRoutes"),
        ("Routes.find_targets", "Routes.FindRouteTargets"),
        // These methods only work on texts, on our side.
        ("Cloud.claim", ""),
        ("Cloud.canonical_id", ""),
        ("Cloud.why_foreign", ""),
        ("LoadBalancers.selector", ""),
        // This method is about files of this process.
        ("Cloud.outdated", ""),
        ("Cloud.changed", ""),
        ("Cloud.shortfalls", ""),
        ("Cloud.in_clear", ""),
        ("Cloud.why_not_offered", ""),
    ];
    let traits = [
        ("Cloud", include_str!("../../cloud/src/provider.rs")),
        ("Instances", include_str!("../../cloud/src/instances.rs")),
        ("LoadBalancers", include_str!("../../cloud/src/load_balancers.rs")),
        ("Routes", include_str!("../../cloud/src/routes.rs")),
    ];
    let in_traits: BTreeSet<String> = traits
        .iter()
        .flat_map(|(name, source)| {
            methods(source, name).into_iter().map(move |method| format!("{name}.{method}"))
        })
        .collect();
    let in_pairs: BTreeSet<String> = pairs.iter().map(|(method, _)| (*method).to_owned()).collect();
    assert_eq!(in_traits, in_pairs, "the contract's methods");

    let services = protocol("proto").service;
    let in_protocol: BTreeSet<String> = services
        .iter()
        .flat_map(|service| {
            service.method.iter().map(move |method| format!("{}.{}", service.name(), method.name()))
        })
        .collect();
    let in_pairs: BTreeSet<String> =
        pairs.iter().map(|(_, call)| (*call).to_owned()).filter(|call| !call.is_empty()).collect();
    assert_eq!(in_protocol, in_pairs, "the protocol's methods");
}

/// From the first release on, lines are only added to this file: no line is removed, and no field
/// changes its number or its type. `QUARTET_WRITE_DOCS=1` writes it.
#[test]
fn every_field_has_its_number() {
    let mut fields = String::new();
    for message in protocol("proto").message_type {
        for field in &message.field {
            let repeated = if field.label() == Label::Repeated { "repeated " } else { "" };
            let (kind, type_name) = (field.r#type().as_str_name(), field.type_name());
            let (name, number) = (field.name(), field.number());
            writeln!(fields, "{}.{name} = {number} {repeated}{kind} {type_name}", message.name())
                .unwrap();
        }
    }
    if std::env::var_os("QUARTET_WRITE_DOCS").is_some() {
        std::fs::write("proto/quartet/cloud/v1/fields.txt", &fields).unwrap();
    }
    let known = std::fs::read_to_string("proto/quartet/cloud/v1/fields.txt").unwrap();
    assert_eq!(known, fields, "see the comment above this test");
}
