//! Prints `docs/metrics.md`.

use std::io::Write as _;

fn main() -> anyhow::Result<()> {
    std::io::stdout().write_all(ccm_tests::metrics_page::page()?.as_bytes())?;
    Ok(())
}
