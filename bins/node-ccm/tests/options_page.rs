//! docs/options.md is what the program prints.

#[test]
fn the_page_is_current() {
    let page = include_str!("../../../docs/options.md");
    let printed = ccm_runtime::program::options_markdown::<node_ccm::NodeCcm>();
    assert_eq!(page.trim_end(), printed.trim_end(), "run `make docs` and commit docs/options.md");
}
