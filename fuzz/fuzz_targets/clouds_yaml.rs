#![no_main]
include!("../target.rs");
read!("clouds_yaml");
