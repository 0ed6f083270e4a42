#!/usr/bin/env bash
# Builds the sidecar around the fake Go provider into a cache outside the checkout, and prints
# its folder. Does nothing if it exists.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../build_once.sh"

root=$(cd "$here/../.." && pwd)
folder_of_proto="$root"/shared/external/proto
proto=quartet/cloud/v1/cloud.proto
sources=$(cd "$here" && find . -name '*.go' -o -name 'go.*' | LC_ALL=C sort)
version=$(cd "$here" && cat $sources "$folder_of_proto/$proto" | sha256sum | cut -c1-12)

build() {
  (cd "$here" && cp --parents $sources "$1")
  cd "$1"
  export CGO_ENABLED=0
  go build -trimpath -o "$1/bin/" ./generate \
    google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
  mkdir pb
  (cd pb && ../bin/generate "$folder_of_proto" "$proto" quartet.test/go-provider/pb ../bin/protoc-gen-go ../bin/protoc-gen-go-grpc)
  # Without tracing of grpc the linker drops unused code.
  go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o "$1/go-provider" .
}

build_once "$cache/go-provider-$version" "a sidecar around k8s.io/cloud-provider's fake" "a minute" "" go-provider
