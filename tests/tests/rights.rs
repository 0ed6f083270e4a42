//! Each program with exactly the rights that its manifests grant, and with one right less.

use std::process::ExitCode;

use ccm_tests::rights::{of_node_and_lifecycle, trials};

fn main() -> anyhow::Result<ExitCode> {
    trials::main(&of_node_and_lifecycle())
}
