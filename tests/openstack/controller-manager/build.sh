#!/usr/bin/env bash
# Builds openstack-cloud-controller-manager from its Go modules (go.mod beside this file pins
# them) into a cache outside the checkout, and prints its folder. Does nothing if it exists.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../build_once.sh"

module=k8s.io/cloud-provider-openstack
name=openstack-cloud-controller-manager
version=$(awk -v module="$module" '$1 == module && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
[ -n "$version" ] || { say "$here/go.mod names no version of $module"; exit 1; }

build() {
  cd "$here"
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$1/" "$module/cmd/$name"
}

sum=$(cat "$here"/go.mod "$here"/go.sum | sha256sum | cut -c1-12)
build_once "$cache/$name-$version-$sum" "$name $version" "5 minutes" "" "$name"
