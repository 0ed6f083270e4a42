#!/usr/bin/env bash
# Builds kube-apiserver, kubectl and etcd from their Go modules into a cache
# outside the checkout, and prints that folder. Does nothing when they are there.
# With KUBEBUILDER_ASSETS set, that folder's binaries are used instead.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf '%s\n' "$*" >&2; }

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  for tool in kube-apiserver etcd kubectl; do
    [ -x "$KUBEBUILDER_ASSETS/$tool" ] || { say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS holds no executable $tool"; exit 1; }
  done
  echo "$KUBEBUILDER_ASSETS"
  exit 0
fi

kubernetes=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
etcd=$(awk '$1 == "go.etcd.io/etcd/server/v3" && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
[ -n "$kubernetes" ] && [ -n "$etcd" ] || { say "$here/go.mod names no version of k8s.io/kubernetes or of etcd"; exit 1; }
cache="${XDG_CACHE_HOME:-$HOME/.cache}/quartet/kube-apiserver-$kubernetes-etcd-$etcd"

if [ ! -x "$cache/kube-apiserver" ] || [ ! -x "$cache/kubectl" ] || [ ! -x "$cache/etcd" ]; then
  command -v go >/dev/null || { say "go is missing: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS"; exit 1; }
  say "building kube-apiserver $kubernetes and etcd $etcd into $cache (once; about 7 minutes on two cores)"
  mkdir -p "$cache"
  # A build that is cut off must not leave half a binary behind: build aside, then move.
  aside=$(mktemp -d "$cache/.build-XXXXXX")
  trap 'rm -rf "$aside"' EXIT
  cd "$here"
  minor=${kubernetes#v1.}; minor=${minor%%.*}
  version=k8s.io/component-base/version
  CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=$minor" \
    -o "$aside/" k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl >&2
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$aside/etcd" go.etcd.io/etcd/server/v3 >&2
  mv "$aside/kube-apiserver" "$aside/kubectl" "$aside/etcd" "$cache/"
fi
echo "$cache"
