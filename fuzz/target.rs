// The common part of all targets: libFuzzer's input, and our changes of it beside its own.

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

macro_rules! read {
    ($name:literal) => {
        fuzz_target!(|data: &[u8]| {
            let target = ccm_fuzz::target($name).expect("a target of this name");
            (target.read)(data);
        });

        fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
            // Its own changes are by what it has learnt.
            if seed % 4 == 0 {
                return fuzzer_mutate(data, size, most);
            }
            let target = ccm_fuzz::target($name).expect("a target of this name");
            let input = [data[..size].to_vec()];
            let changed = ccm_fuzz::mutate::mutated(target.form, &input, seed.into());
            let size = changed.len().min(most);
            data[..size].copy_from_slice(&changed[..size]);
            size
        });
    };
}
