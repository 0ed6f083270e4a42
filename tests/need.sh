#!/usr/bin/env bash
# Lists the programs that this machine lacks for building Quartet, and installs those that the
# system's package manager can install.
set -euo pipefail
want=$(awk -F'"' '/^rust-version/ {print $2; exit}' "$(dirname "${BASH_SOURCE[0]}")/../Cargo.toml")

if ! command -v cargo >/dev/null && [ -f "${CARGO_HOME:-$HOME/.cargo}/env" ]; then
  echo "cargo is installed but not on PATH: run '. ${CARGO_HOME:-$HOME/.cargo}/env' and try again" >&2
  exit 1
fi
if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install Rust $want or newer (https://www.rust-lang.org/tools/install)" >&2
  exit 1
fi
have=$(rustc --version | awk '{print $2}')
if [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" != "$want" ]; then
  echo "Rust $have is too old: install $want or newer (rustup update stable)" >&2
  exit 1
fi
if ! command -v cc >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q >&2 && apt-get install -y -q gcc libc6-dev >&2
  else
    echo "a C compiler (cc) is missing: install gcc or clang" >&2
    exit 1
  fi
fi
