//! "Did you mean ...?" for misspelt names, by the words of all programs.

pub(crate) use ccm_cloud::nearest;
