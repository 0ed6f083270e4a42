//! Compiles the external provider's protocol. In pure Rust: nobody needs `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["quartet/cloud/v1/cloud.proto"], ["proto"])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(files)?;
    Ok(())
}
