//! Compiles the external provider's protocol. Needs no `protoc`.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["quartet/cloud/v1/cloud.proto"], ["proto"])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(files)?;
    // A provider of the first revision, which the tests keep.
    let tests = "tests/revision_1";
    println!("cargo::rerun-if-changed={tests}");
    let files = protox::compile(["quartet/cloud/v1/cloud.proto"], [tests])?;
    let folder = PathBuf::from(env::var("OUT_DIR")?).join("revision_1");
    fs::create_dir_all(&folder)?;
    tonic_prost_build::configure()
        .build_client(false)
        .btree_map(".")
        .out_dir(folder)
        .compile_fds(files)?;
    Ok(())
}
