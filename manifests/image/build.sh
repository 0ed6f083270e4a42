#!/usr/bin/env bash
# Builds the image of one program: image/build.sh node-ccm registry.example.com/quartet/node-ccm:v1
# The program is the one from `make build`, or the one that BINARY names. BUILDER is docker, podman or
# buildah: the first one found. CA_BUNDLE is the PEM file of the authorities that the cloud's
# certificates are verified with (by default the one of this machine).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { printf '%s\n' "$*" >&2; exit 1; }

[ $# = 2 ] || fail "usage: $0 <program> <image>, for instance $0 node-ccm registry.example.com/quartet/node-ccm:v1"
program=$1 image=$2
binary=${BINARY:-}
if [ -z "$binary" ]; then
  host=$(rustc -vV | sed -n 's/^host: //p')
  binary=$here/../../target/$host/dist/$program
fi
[ -f "$binary" ] || fail "$binary is missing: run \`make build\`, or set BINARY"
if command -v readelf >/dev/null && readelf -l "$binary" | grep -q INTERP; then
  fail "$binary needs shared libraries, which an empty image does not have: use the program of \`make build\`"
fi

bundle=${CA_BUNDLE:-}
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
  [ -n "$bundle" ] || { [ -f "$file" ] && bundle=$file; } || true
done
[ -f "$bundle" ] || fail "no certificates found: install the package ca-certificates, or set CA_BUNDLE"

builder=${BUILDER:-}
for tool in docker podman buildah; do
  [ -n "$builder" ] || { command -v "$tool" >/dev/null && builder=$tool; } || true
done
[ -n "$builder" ] || fail "no builder found: install docker, podman or buildah, or set BUILDER"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v python3 >/dev/null || fail "python3 is missing: it gathers the licence texts"
"$here/licences.py" "$program" >"$folder/licences.txt"
install -m 0644 "$bundle" "$folder/ca-certificates.crt"
install -m 0755 "$binary" "$folder/controller"
"$builder" build --tag "$image" --file "$here/Containerfile" "$folder"
