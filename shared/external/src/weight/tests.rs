use prost::Message;

use super::*;

const INSTANCES: &str = "/quartet.cloud.v1.Instances/ListInstances";
const LOOKUP: &str = "/quartet.cloud.v1.Instances/LookupInstances";
const BALANCERS: &str = "/quartet.cloud.v1.LoadBalancers/ListLoadBalancers";
const ENSURE: &str = "/quartet.cloud.v1.LoadBalancers/EnsureLoadBalancers";
const ROUTES: &str = "/quartet.cloud.v1.Routes/ListRoutes";
const DESCRIBE: &str = "/quartet.cloud.v1.Provider/Describe";

fn weigh(path: &str, message: &impl Message) -> Result<usize, Refused> {
    weigh_parts(path, &message.encode_to_vec(), 1 << 14)
}

fn instance(number: usize, labels: usize) -> proto::Instance {
    let text = |prefix: &str| Some(format!("{prefix}-{number:032}"));
    let address = || proto::NodeAddress { kind: Some(1), address: text("10.0.0.1") };
    proto::Instance {
        provider_id: text("rogue:///eu-west"),
        other_ids: vec![text("other").unwrap_or_default()],
        name: text("node"),
        instance_type: text("type"),
        zone: text("zone"),
        region: text("region"),
        addresses: vec![address(), address(), address()],
        labels: (0..labels).map(|at| (format!("example.com/l{at}"), "v".repeat(20))).collect(),
        power: Some(1),
        pod_cidrs: vec!["10.244.0.0/24".to_owned()],
    }
}

fn balancer(listeners: u32, members: usize) -> proto::LoadBalancer {
    let text = |text: &str| Some(text.repeat(8));
    let pool = |port| proto::Pool { port: Some(port), members: Some(3), ..Default::default() };
    let note = proto::Note { reason: text("a"), message: text("note"), ..Default::default() };
    let member = |at: usize| proto::Member {
        node: Some(format!("worker-{at:020}")),
        provider_id: Some(format!("rogue:///{at:036}")),
        addresses: vec![proto::NodeAddress { kind: Some(1), address: text("10.0") }],
        ..Default::default()
    };
    proto::LoadBalancer {
        id: text("0123"),
        name: text("kube_service"),
        digest: text("01234567"),
        version: text("1"),
        owner: Some(proto::Owner { uid: text("uid-"), name: text("web"), ..Default::default() }),
        members: Some(proto::MemberList { members: (0..members).map(member).collect() }),
        ingress: vec![proto::Ingress::default(); 2],
        annotations: (0..3).map(|at| (format!("a{at}"), "value".to_owned())).collect(),
        notes: vec![note; 3],
        pools: Some(proto::PoolList { pools: (0..listeners).map(pool).collect() }),
        ..Default::default()
    }
}

#[test]
fn honest_answers_are_light() {
    let instances = (0..5000).map(|at| instance(at, 10)).collect();
    let list = proto::ListInstancesResponse { instances, ..Default::default() };
    assert!(weigh(INSTANCES, &list).expect("light") < MOST * 2 / 3);
    let load_balancers = vec![balancer(50, 0); 1000];
    let list = proto::ListLoadBalancersResponse { load_balancers, ..Default::default() };
    assert!(weigh(BALANCERS, &list).expect("light") < MOST / 2);
    let owner = proto::Owner {
        uid: Some("u".repeat(36)),
        name: Some("n".repeat(40)),
        ..Default::default()
    };
    let target = proto::RouteTarget {
        target: Some(proto::route_target::Target::Address("10.0.0.1".to_owned())),
    };
    let route = proto::Route {
        id: Some("i".repeat(36)),
        destination: Some("10.244.100.0/24".to_owned()),
        target: Some(target),
        owner: Some(owner),
        ..Default::default()
    };
    let list = proto::ListRoutesResponse { routes: vec![route; 20_000], ..Default::default() };
    assert!(weigh(ROUTES, &list).expect("light") < MOST * 2 / 3);
    let done = proto::ensure_load_balancers_item::Answer::Done(balancer(50, 5000));
    let item = proto::EnsureLoadBalancersItem { answer: Some(done), ..Default::default() };
    assert!(weigh(ENSURE, &item).expect("light") < MOST_OF_ITEM / 2);
}

#[test]
fn what_grows_when_it_is_decoded_is_refused_before() {
    // Each kind of field with two bytes on the wire, and map entries.
    for (path, few) in [
        (INSTANCES, &[0x0a, 0][..]),
        (INSTANCES, &[0x12, 0]),
        // An instance with one empty label; with addresses; with IDs.
        (INSTANCES, &[0x0a, 2, 0x42, 0]),
        (INSTANCES, &[0x0a, 4, 0x3a, 0, 0x3a, 0]),
        (INSTANCES, &[0x0a, 2, 0x12, 0]),
        (BALANCERS, &[0x0a, 0]),
        // A load balancer with a member with an address.
        (BALANCERS, &[0x0a, 6, 0x62, 4, 0x0a, 2, 0x1a, 0]),
        (ROUTES, &[0x0a, 0]),
        (ROUTES, &[0x12, 0]),
        (DESCRIBE, &[0x12, 0]),
        (DESCRIBE, &[0x4a, 0]),
        // A list of numbers.
        (DESCRIBE, &[0x38, 1]),
    ] {
        let bytes = few.repeat((30 << 20) / few.len());
        assert_eq!(weigh_parts(path, &bytes, 1 << 14), Err(Refused::Heavy), "{path} {few:?}");
    }
    let packed = [&[0x3a, 0x80, 0x80, 0x80, 8][..], &vec![1; 16 << 20]].concat();
    assert_eq!(weigh_parts(DESCRIBE, &packed, 1 << 14), Err(Refused::Heavy));
    let many = (0..400_000).map(|at| (at.to_string(), String::new())).collect();
    let list = proto::ListInstancesResponse {
        instances: vec![proto::Instance { labels: many, ..Default::default() }],
        ..Default::default()
    };
    assert_eq!(weigh(INSTANCES, &list), Err(Refused::Heavy));
}

#[test]
fn a_message_of_a_stream_is_about_one_object() {
    let bytes = [&[0x12, 0x80, 0x80, 0x80, 1][..], &[0x22, 0].repeat(1 << 20)].concat();
    assert_eq!(weigh_parts(LOOKUP, &bytes, 100), Ok(0), "empty texts of the same field");
    let found = proto::lookup_answer::Answer::Found(instance(0, 100_000));
    let answer = proto::LookupAnswer { answer: Some(found), ..Default::default() };
    let item = proto::LookupInstancesItem { answer: Some(answer), ..Default::default() };
    assert_eq!(weigh(LOOKUP, &item), Err(Refused::HeavyItem));
    let long = vec![0; MOST_OF_ITEM + 1];
    assert_eq!(weigh_parts(LOOKUP, &long, 1), Err(Refused::Long(MOST_OF_ITEM)));
    assert_eq!(weigh_parts(ROUTES, &vec![0; MAX_ANSWER + 1], 1), Err(Refused::Long(MAX_ANSWER)));
}

#[test]
fn the_answers_to_a_call_count_together() {
    let answer = Answer::by_path(ROUTES).expect("a method");
    let list =
        proto::ListRoutesResponse { malformed: vec!["x".repeat(20 << 20)], ..Default::default() };
    let (bytes, budget) = (list.encode_to_vec(), Budget::default());
    let mut outcomes = (0..3).map(|_| {
        let mut scale = Scale::new(answer, budget.clone(), bytes.len() as u64)?;
        scale.read(&bytes)?;
        scale.end()
    });
    assert!(outcomes.next().is_some_and(|first| first.is_ok()));
    assert!(outcomes.next().is_some_and(|second| second.is_ok()));
    assert_eq!(outcomes.next(), Some(Err(Refused::Heavy)));
    let mut scale = Scale::new(answer, budget.clone(), bytes.len() as u64).expect("short");
    assert_eq!(scale.read(&bytes), Err(Refused::Heavy), "before its end");
    budget.give_back(usize::MAX);
    assert_eq!(budget.take(MOST), Ok(()));
    assert_eq!(budget.take(1), Err(Refused::Heavy));
}

/// The elements of a list do not take more memory than they weigh.
#[test]
fn lists_weigh_at_least_what_they_take() {
    for count in [0, 1, 2, 5, 100, 1025, 16_385] {
        let page = proto::ListInstancesResponse {
            instances: vec![instance(1, 3); count],
            malformed: vec![String::new(); count],
            ..Default::default()
        };
        let bytes = page.encode_to_vec();
        let weight = weigh_parts(INSTANCES, &bytes, 1 << 14).expect("light");
        let page = proto::ListInstancesResponse::decode(&*bytes).expect("a page");
        let inner = |instance: &proto::Instance| {
            let texts = [&instance.provider_id, &instance.name, &instance.instance_type];
            let texts = texts.into_iter().flatten().chain(&instance.other_ids);
            texts.map(String::capacity).sum::<usize>()
                + instance.other_ids.capacity() * size_of::<String>()
                + instance.addresses.capacity() * size_of::<proto::NodeAddress>()
                + instance.labels.len() * 2 * size_of::<String>()
        };
        let taken = page.instances.capacity() * size_of::<proto::Instance>()
            + page.malformed.capacity() * size_of::<String>()
            + page.instances.iter().map(inner).sum::<usize>();
        assert!(weight >= taken, "{count}: {weight} < {taken}");
    }
}

#[test]
fn a_message_weighs_the_same_however_it_is_cut() {
    let list = proto::ListLoadBalancersResponse {
        load_balancers: vec![balancer(3, 2), proto::LoadBalancer::default(), balancer(0, 1)],
        malformed: vec!["a".to_owned(), String::new(), "c".repeat(300)],
        next_page_token: Some("next".to_owned()),
    };
    let bytes = list.encode_to_vec();
    let whole = weigh_parts(BALANCERS, &bytes, bytes.len()).expect("light");
    assert!(whole > bytes.len());
    for size in [1, 2, 3, 7, 100] {
        assert_eq!(weigh_parts(BALANCERS, &bytes, size), Ok(whole), "{size}");
    }
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    for bytes in [
        // A group, which the decoder would skip; its end; unknown kinds.
        &[0x7b, 0x7c][..],
        &[0x7c],
        &[0x0e, 0],
        // A field that is longer than its message, and one that is longer than everything.
        &[0x0a, 2, 0x12, 5, 1, 1, 1, 1, 1],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        // A number without an end.
        &[0x0a, 2, 0x80, 0x80, 0x80],
        &[0x80; 12],
    ] {
        for size in [1, 20] {
            assert_eq!(weigh_parts(ROUTES, bytes, size), Err(Refused::Broken), "{bytes:?}");
        }
    }
    let skipped = [0x78, 0x80, 1, 0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x7d, 1, 2, 3, 4];
    assert_eq!(weigh_parts(ROUTES, &skipped, 1), Ok(0));
}
