#!/usr/bin/env bash
# Checks one crate while you work on it: its format, clippy, and its unit tests without random
# histories. Prints the seconds of each step.
#
#   tests/check.sh [PACKAGE..]     without one: the crates with changed files
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The packages whose files differ from the last commit.
changed() {
  git status --porcelain --untracked-files=all | cut -c 4- | sed 's/.* -> //' | while read -r path; do
    folder=$(dirname "$path")
    until [ "$folder" = . ] || [ -f "$folder/Cargo.toml" ]; do folder=$(dirname "$folder"); done
    [ "$folder" = . ] || awk -F'"' '/^name = / {print $2; exit}' "$folder/Cargo.toml"
  done | sort -u
}

step() {
  local start=$SECONDS
  "$@" || { echo "failed: $*" >&2; exit 1; }
  printf '%4d s  %s\n' $((SECONDS - start)) "$*"
}

folder_of() {
  grep -l "^name = \"$1\"$" Cargo.toml ./*/Cargo.toml ./*/*/Cargo.toml | head -n 1 | xargs -r dirname
}

[ $# -gt 0 ] || mapfile -t packages < <(changed)
[ $# -eq 0 ] || packages=("$@")
[ "${#packages[@]}" -gt 0 ] || { echo "no crate has changes: name one, such as make check CRATE=service-ccm" >&2; exit 2; }

for package in "${packages[@]}"; do
  folder=$(folder_of "$package") || true
  [ -n "$folder" ] || { echo "$package is not a crate of this workspace" >&2; exit 2; }
  # A crate without a library has its tests in its programs.
  targets=--lib
  [ -f "$folder/src/lib.rs" ] || targets=--bins
  step cargo fmt --check -p "$package"
  step cargo clippy --locked --quiet -p "$package" --all-targets --no-deps -- -D warnings
  step cargo test --locked --quiet -p "$package" $targets -- --skip histor --skip variant
done
printf '%4d s  together\n' "$SECONDS"
