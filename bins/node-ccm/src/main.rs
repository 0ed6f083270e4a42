//! See `node_ccm`.

use std::process::ExitCode;

/// Returns memory to the system sooner than the system's allocator after large lists.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ccm_runtime::program::main::<node_ccm::NodeCcm>(ccm_providers::registry())
}
