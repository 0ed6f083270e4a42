#!/usr/bin/env bash
# Builds openstack-cloud-controller-manager from its Go modules (go.mod beside this file pins
# them) into a cache outside the checkout, and prints its folder. Does nothing when it is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf '%s\n' "$*" >&2; }

module=k8s.io/cloud-provider-openstack
name=openstack-cloud-controller-manager
version=$(awk -v module="$module" '$1 == module && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
[ -n "$version" ] || { say "$here/go.mod names no version of $module"; exit 1; }
folder="${XDG_CACHE_HOME:-$HOME/.cache}/quartet/$name-$version-$(cat "$here"/go.mod "$here"/go.sum | sha256sum | cut -c1-12)"
if [ ! -x "$folder/$name" ]; then
  command -v go >/dev/null || { say "go is missing: install Go 1.26 or newer"; exit 1; }
  say "building $name $version into $folder (once; about 5 minutes on two cores)"
  mkdir -p "$folder"
  # A build that is cut off must not leave half a binary behind: build aside, then move.
  aside=$(mktemp -d "$folder/.build-XXXXXX")
  trap 'rm -rf "$aside"' EXIT
  cd "$here"
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$aside/" "$module/cmd/$name" >&2
  mv "$aside/$name" "$folder/"
fi
echo "$folder"
