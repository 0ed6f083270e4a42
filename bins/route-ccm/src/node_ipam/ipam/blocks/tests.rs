use super::*;

fn pool(network: &str, mask: u8) -> Pool {
    Pool::new(ClusterRange { network: net(network), mask })
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn take(pool: &mut Pool) -> Option<String> {
    let found = pool.find()?;
    pool.take(found.block);
    Some(found.block.to_string())
}

#[test]
fn blocks_are_given_one_after_the_other_until_none_is_left() {
    for (network, mask, expect) in [
        ("127.123.234.0/30", 32, ["127.123.234.0/32", "127.123.234.1/32", "127.123.234.3/32"]),
        ("10.0.0.0/22", 24, ["10.0.0.0/24", "10.0.1.0/24", "10.0.3.0/24"]),
        ("fd00::/46", 48, ["fd00::/48", "fd00:0:1::/48", "fd00:0:3::/48"]),
        ("fd00::/61", 63, ["fd00::/63", "fd00:0:0:2::/63", "fd00:0:0:6::/63"]),
        ("fd00::/62", 64, ["fd00::/64", "fd00:0:0:1::/64", "fd00:0:0:3::/64"]),
        ("fd00::/70", 72, ["fd00::/72", "fd00::100:0:0:0/72", "fd00::300:0:0:0/72"]),
        ("fd00::/94", 96, ["fd00::/96", "fd00::1:0:0/96", "fd00::3:0:0/96"]),
        ("::/0", 2, ["::/2", "4000::/2", "c000::/2"]),
    ] {
        let mut pool = pool(network, mask);
        let given: Vec<_> = std::iter::from_fn(|| take(&mut pool)).collect();
        assert_eq!([&given[0], &given[1], &given[3]], expect.each_ref(), "{network}");
        assert_eq!((given.len(), pool.used(), pool.capacity()), (4, 4, 4));
        assert_eq!((pool.find(), pool.allocations, pool.releases), (None, 4, 0));
    }
}

#[test]
fn a_free_block_is_found_behind_the_last_one_first() {
    let mut pool = pool("10.0.0.0/22", 24);
    take(&mut pool);
    take(&mut pool);
    pool.refresh(net("10.0.0.0/24"), [].into_iter());
    assert_eq!(take(&mut pool).unwrap(), "10.0.2.0/24");
    assert_eq!(take(&mut pool).unwrap(), "10.0.3.0/24");
    assert_eq!(take(&mut pool).unwrap(), "10.0.0.0/24");
    assert_eq!(take(&mut pool), None);
}

#[test]
fn a_network_marks_all_blocks_that_it_touches_and_no_block_counts_twice() {
    let mut pool = pool("10.0.0.0/16", 24);
    for (network, used) in [
        ("10.0.1.0/24", 1),
        ("10.0.1.0/24", 1),
        ("10.0.1.128/25", 1),
        ("10.0.2.7/32", 2),
        ("10.0.0.0/22", 4),
        ("10.1.0.0/24", 4),
        ("fd00::/64", 4),
        ("9.0.0.0/8", 4),
        ("10.0.128.0/17", 132),
        ("10.0.0.0/8", 256),
        ("0.0.0.0/0", 256),
    ] {
        pool.mark(net(network));
        assert_eq!((pool.used(), u128::from(pool.allocations)), (used, used), "{network}");
    }
    pool.refresh(net("10.0.0.0/8"), [net("10.0.9.128/25"), net("10.0.4.0/22")].into_iter());
    assert_eq!((pool.used(), pool.releases), (5, 251));
    pool.refresh(net("10.0.9.200/32"), [].into_iter());
    pool.refresh(net("10.0.9.200/32"), [].into_iter());
    assert_eq!((pool.used(), pool.allocations, pool.releases), (4, 256, 252));
}

#[test]
fn ranges_of_any_size_are_small() {
    let mut largest = pool("::/0", 128);
    assert_eq!(largest.capacity(), u128::MAX);
    assert_eq!(take(&mut largest).unwrap(), "::/128");
    largest.mark(net("::/1"));
    assert_eq!(take(&mut largest).unwrap(), "8000::/128");
    let mut one = pool("fd00::/64", 64);
    assert_eq!((take(&mut one).unwrap().as_str(), take(&mut one)), ("fd00::/64", None));
    let mut v4 = pool("0.0.0.0/0", 32);
    v4.mark(net("0.0.0.0/1"));
    assert_eq!(take(&mut v4).unwrap(), "128.0.0.0/32");
}

#[test]
fn the_looks_of_a_search_are_counted() {
    let mut pool = pool("10.0.0.0/22", 24);
    let tries = |pool: &Pool| pool.find().unwrap().tries;
    assert_eq!(tries(&pool), 1);
    pool.mark(net("10.0.0.0/24"));
    assert_eq!(tries(&pool), 2);
    pool.take(net("10.0.2.0/24"));
    pool.mark(net("10.0.3.0/24"));
    assert_eq!((tries(&pool), pool.find().unwrap().block), (3, net("10.0.1.0/24")));
}

#[test]
fn only_a_network_within_one_block_blocks_it() {
    let pool = pool("10.0.0.0/16", 24);
    for (network, expect) in [
        ("10.0.1.0/24", true),
        ("10.0.1.7/32", true),
        ("10.0.0.0/16", false),
        ("10.1.0.0/24", false),
        ("0.0.0.0/0", false),
    ] {
        assert_eq!(pool.is_within_block(net(network)), expect, "{network}");
    }
}
