//! Reads the pages of a list, bounded by bytes, because the writer of an object decides about its
//! size.
//!
//! The body of a page is held once, and its objects are parsed one after the other.

use http_body_util::BodyExt as _;
use kube::{
    Client,
    api::{ListParams, Request},
    client::Body,
    core::{ListMeta, Status},
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The number of objects of the first page, when the size of objects is not known yet.
const FIRST: u32 = 20;
/// The most objects of a page.
const MOST: u32 = 500;
/// How many times as many objects as the last page the next one may have. It is bounded, because
/// the objects may be larger.
const GROWTH: u32 = 5;
/// The wanted size of a page in bytes.
const WANTED: usize = 4 << 20;
/// The largest page in bytes that is read, unless it has one object.
const LARGEST: usize = 8 << 20;

/// The number of objects to ask for in the next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSize(u32);

impl Default for PageSize {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl PageSize {
    /// Adapts to a page of this many objects and bytes.
    pub(super) fn adapt(&mut self, objects: usize, bytes: usize) {
        if objects == 0 {
            return;
        }
        let fitting = WANTED.saturating_mul(objects) / bytes.max(1);
        let fitting = u32::try_from(fitting).unwrap_or(MOST).clamp(1, MOST);
        // A short page, such as the last one of a list, says little about the next.
        let is_full = u32::try_from(objects).is_ok_and(|objects| objects >= self.0);
        if is_full || fitting < self.0 {
            self.0 = fitting.min(self.0.saturating_mul(GROWTH));
        }
    }

    /// Makes the next page smaller, because this one was larger than [`LARGEST`]. Returns false if a
    /// page has only one object.
    fn shrink(&mut self) -> bool {
        let may_shrink = self.0 > 1;
        self.0 = (self.0 / GROWTH).max(1);
        may_shrink
    }
}

/// A page of a list, with its objects as text.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub(super) metadata: ListMeta,
    #[serde(borrow, default, deserialize_with = "null_is_none")]
    pub(super) items: Vec<&'a RawValue>,
}

fn null_is_none<'de, D>(deserializer: D) -> Result<Vec<&'de RawValue>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Returns the body of the page behind this token. A page that is too large is asked for again,
/// smaller.
pub(super) async fn read(
    client: &Client,
    path: &str,
    token: Option<String>,
    size: &mut PageSize,
) -> Result<Vec<u8>, kube::Error> {
    let mut params = ListParams { continue_token: token, ..ListParams::default() };
    loop {
        params.limit = Some(size.0);
        let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest)?;
        let response = client.send(request.map(Body::from)).await?;
        let code = response.status();
        let Some(bytes) = whole(response.into_body(), size).await? else { continue };
        if code.is_success() {
            return Ok(bytes);
        }
        // The clients of programs refuse these themselves.
        let status = serde_json::from_slice(&bytes);
        let status: Status = status.unwrap_or_else(|_| Status::failure("not a list", ""));
        return Err(kube::Error::Api(status.with_code(code.as_u16()).boxed()));
    }
}

/// Returns a body as a whole, unless it is too large and a smaller page can be asked for.
async fn whole(mut body: Body, size: &mut PageSize) -> Result<Option<Vec<u8>>, kube::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(frame?.data_ref().map_or(&[], |data| data));
        if bytes.len() > LARGEST && size.shrink() {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sizes of the pages of a list of `count` objects of these bytes.
    fn sizes(count: usize, bytes: usize) -> Vec<u32> {
        let (mut size, mut left, mut sizes) = (PageSize::default(), count, Vec::new());
        while left > 0 {
            let objects = left.min(size.0 as usize);
            sizes.push(size.0);
            size.adapt(objects, objects * bytes);
            left -= objects;
        }
        sizes
    }

    #[test]
    fn a_page_has_as_many_objects_as_fit() {
        assert_eq!(sizes(1000, 1000), [20, 100, 500, 500]);
        assert_eq!(sizes(700, 16 << 10), [20, 100, 256, 256, 256]);
        assert_eq!(sizes(80, 200_000), [20; 4]);
        assert_eq!(sizes(24, 1 << 20), [20, 4]);
        assert_eq!(sizes(22, 5 << 20), [20, 1, 1]);
    }

    #[test]
    fn a_short_page_enlarges_nothing_and_an_empty_one_is_no_division_by_zero() {
        let mut size = PageSize(40);
        size.adapt(3, 3000);
        size.adapt(0, 0);
        assert_eq!(size, PageSize(40));
        size.adapt(3, 3 << 20);
        assert_eq!(size, PageSize(4));
    }

    #[test]
    fn a_page_that_is_too_large_shrinks_to_one_object() {
        let mut size = PageSize::default();
        let sizes: Vec<(bool, u32)> = (0..3).map(|_| (size.shrink(), size.0)).collect();
        assert_eq!(sizes, [(true, 4), (true, 1), (false, 1)]);
    }
}
