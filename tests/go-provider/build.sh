#!/usr/bin/env bash
# Builds the side-car around the fake Go provider into a cache outside the checkout, and prints
# its folder. Does nothing when it is there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf '%s\n' "$*" >&2; }

root=$(cd "$here/../.." && pwd)
folder_of_proto="$root"/shared/providers/proto
proto=quartet/cloud/v1/cloud.proto
sources=$(cd "$here" && find . -name '*.go' -o -name 'go.*' | LC_ALL=C sort)
version=$(cd "$here" && cat $sources "$folder_of_proto/$proto" | sha256sum | cut -c1-12)
folder="${XDG_CACHE_HOME:-$HOME/.cache}/quartet/go-provider-$version"
if [ ! -x "$folder/go-provider" ]; then
  command -v go >/dev/null || { say "go is missing: install Go 1.26 or newer"; exit 1; }
  say "building a side-car around k8s.io/cloud-provider's fake into $folder (once; about a minute on two cores)"
  mkdir -p "$folder"
  # A build that is cut off must not leave half a binary behind: build aside, then move.
  aside=$(mktemp -d "$folder/.build-XXXXXX")
  trap 'rm -rf "$aside"' EXIT
  (cd "$here" && cp --parents $sources "$aside")
  cd "$aside"
  export CGO_ENABLED=0
  go build -trimpath -o "$aside/bin/" ./generate \
    google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc >&2
  mkdir pb
  (cd pb && ../bin/generate "$folder_of_proto" "$proto" quartet.test/go-provider/pb ../bin/protoc-gen-go ../bin/protoc-gen-go-grpc)
  # Without tracing of grpc the linker drops what is not used.
  go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o "$aside/go-provider" . >&2
  mv "$aside/go-provider" "$folder/"
fi
echo "$folder"
