#!/usr/bin/env bash
# Checks the alert rules and their cases with promtool, from the folder of install.sh. Each case runs
# twice: as it is written, and with the labels that targets have through the ServiceMonitor of
# manifests/components/prometheus-operator. The operator sets `pod`, `container`, `endpoint` and
# `service` there, and Prometheus calls a label of that name that a metric has `exported_...`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
alerts=$(cd "$here/../../grafana/alerts" && pwd)
promtool=$("$here/install.sh")/promtool
grep -q honorLabels "$here/../../manifests/components/prometheus-operator/servicemonitor.yaml" &&
  { echo "the ServiceMonitor has honorLabels: change what this script does to the cases" >&2; exit 1; }

"$promtool" check rules "$alerts"/*.yaml
"$promtool" test rules "$alerts"/tests/*.yaml

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for file in "$alerts"/tests/*.yaml; do
  sed -E -e "s|^( *- )\.\./|\1$alerts/|" \
    -e '/- series: /s/([{,])(pod|container|endpoint|service)=/\1exported_\2=/g' \
    -e '/- series: .*job="/s/\{/{pod="a-pod",container="controller",endpoint="metrics",service="a-service",/' \
    "$file" > "$folder/$(basename "$file")"
done
echo "Through the ServiceMonitor:"
"$promtool" test rules "$folder"/*.yaml
