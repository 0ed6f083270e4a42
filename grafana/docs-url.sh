#!/usr/bin/env bash
# Sets the URL of the published docs/ in everything that links there: the alerts with their cases,
# the dashboards, and the operator's rules in manifests/.
#   grafana/docs-url.sh https://git.example.com/quartet/blob/main/docs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
old=$(cat grafana/docs-url) new=${1:-}
new=${new%/}
[[ $new =~ ^https?://[A-Za-z0-9][A-Za-z0-9./:_~%-]*$ ]] || { echo "usage: $0 URL, for instance https://git.example.com/quartet/blob/main/docs" >&2; exit 2; }
for file in grafana/docs-url grafana/alerts/*.yaml grafana/alerts/tests/*.yaml grafana/dashboards/*.json \
  manifests/components/prometheus-operator/rules.yaml; do
  text=$(cat "$file")
  printf '%s\n' "${text//"$old"/"$new"}" > "$file"
done
