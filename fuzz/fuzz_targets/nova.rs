#![no_main]
include!("../target.rs");
read!("nova");
