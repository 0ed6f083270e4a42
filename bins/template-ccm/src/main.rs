//! See `template_ccm`. A copy only changes the names of the crate and of its program.

use std::process::ExitCode;

/// Returns memory to the system sooner than the system's allocator after large lists.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ccm_runtime::program::main::<template_ccm::TemplateCcm>(ccm_providers::registry())
}
