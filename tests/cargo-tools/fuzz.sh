#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: fuzzes each target for this time with cargo-fuzz, one for each processor
# at the same time. Without a C++ compiler, which libFuzzer needs, or with RANDOM_ONLY=1, it uses random
# inputs of the program `fuzz` and runs all targets at the same time. Failing inputs are kept in
# fuzz/artifacts, and should be added to the corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds="$1"
shift
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=($(cd fuzz/fuzz_targets && ls | sed 's/\.rs$//'))

if [ -n "${RANDOM_ONLY:-}" ] || ! command -v "${CXX:-c++}" >/dev/null; then
  [ -n "${RANDOM_ONLY:-}" ] || echo "no C++ compiler for libFuzzer: random inputs"
  cargo build --locked --release -p ccm-fuzz
  exec target/release/fuzz --seconds="$seconds" "${targets[@]}"
fi

cargo_fuzz=$(tests/cargo-tools/install.sh cargo-fuzz)
export PATH="${cargo_fuzz%/*}:$PATH"
# These are the tested versions. cargo adds libFuzzer.
cp Cargo.lock fuzz/Cargo.lock
# Only the sanitizers need a nightly toolchain, and unsafe code, which they would find, is forbidden here.
cargo fuzz build --sanitizer=none

fuzz() {
  # New inputs go to another folder, because the corpus is kept small by hand.
  mkdir -p "fuzz/target/found/$1"
  cargo fuzz run --sanitizer=none "$1" "fuzz/target/found/$1" "fuzz/corpus/$1" -- \
    -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -max_len=262144 >"fuzz/target/$1.log" 2>&1 ||
    { echo "$1: FAILED"; tail -n 60 "fuzz/target/$1.log"; return 1; }
  echo "$1: $(grep -o 'Done .*' "fuzz/target/$1.log"), $(grep -o 'cov: [0-9]*' "fuzz/target/$1.log" | tail -n 1), failed: 0"
}
export -f fuzz
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
