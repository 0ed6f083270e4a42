#![no_main]
include!("../target.rs");
read!("cloud_conf");
