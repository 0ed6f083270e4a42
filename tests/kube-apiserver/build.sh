#!/usr/bin/env bash
# Builds programs of Kubernetes from their Go modules into a cache outside the
# checkout, and prints their folder. Does nothing if they exist.
#   build.sh            kube-apiserver, kubectl and etcd. With KUBEBUILDER_ASSETS set,
#                       that folder's binaries are used instead.
#   build.sh kubelets   kube-controller-manager, and the kubelet of kubelet/main.go
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../build_once.sh"

kubernetes=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
etcd=$(awk '$1 == "go.etcd.io/etcd/server/v3" && $2 ~ /^v/ {print $2; exit}' "$here/go.mod")
[ -n "$kubernetes" ] && [ -n "$etcd" ] || { say "$here/go.mod names no version of k8s.io/kubernetes or of etcd"; exit 1; }

part="${1:-}"
case "$part" in
"")
  tools=(kube-apiserver etcd kubectl)
  if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
    for tool in "${tools[@]}"; do
      [ -x "$KUBEBUILDER_ASSETS/$tool" ] || { say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS holds no executable $tool"; exit 1; }
    done
    echo "$KUBEBUILDER_ASSETS"
    exit 0
  fi
  folder="$cache/kube-apiserver-$kubernetes-etcd-$etcd"
  what="kube-apiserver $kubernetes and etcd $etcd"; takes="7 minutes"; instead=", or set KUBEBUILDER_ASSETS"
  packages=(k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl)
  ;;
kubelets)
  tools=(kube-controller-manager kubelet)
  # The kubelet's main is part of this checkout: a change of it is another version.
  folder="$cache/kubelets-$kubernetes-$(sha256sum <"$here/kubelet/main.go" | cut -c1-12)"
  what="kubelet and kube-controller-manager $kubernetes"; takes="4 minutes"; instead=
  packages=(./kubelet k8s.io/kubernetes/cmd/kube-controller-manager)
  ;;
*) say "build.sh $part: the argument must be 'kubelets', or be left out"; exit 2 ;;
esac

build() {
  cd "$here"
  local minor=${kubernetes#v1.} version=k8s.io/component-base/version
  minor=${minor%%.*}
  CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=$minor" \
    -o "$1/" "${packages[@]}"
  if [ -z "$part" ]; then
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$1/etcd" go.etcd.io/etcd/server/v3
  fi
}

build_once "$folder" "$what" "$takes" "$instead" "${tools[@]}"
