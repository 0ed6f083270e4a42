//! The properties of a kind of object that the kit needs.

use std::borrow::Cow;

use ccm_kube::store::Stored;
use ccm_runtime::rights::Right;
use kube::Resource as _;

/// Returns its plural name in paths and rights, such as `nodes`.
pub(crate) fn plural<K: Stored>() -> Cow<'static, str> {
    K::Wire::plural(&())
}

/// Returns the right to use this verb on all objects of the kind, or on a subresource of each.
pub(crate) fn right<K: Stored>(verb: &'static str, part: &'static str) -> Right {
    Right { group: K::Wire::group(&()), resource: plural::<K>(), ..Right::on_part(verb, "", part) }
}
