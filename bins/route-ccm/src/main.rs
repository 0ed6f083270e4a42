//! See `route_ccm`.

use std::process::ExitCode;

/// Returns memory to the system sooner than the system's allocator after large lists.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ccm_runtime::program::main::<route_ccm::RouteCcm>(ccm_providers::registry())
}
