#!/usr/bin/env bash
# Writes the generated files: rendered/, one file for each overlay, and the Prometheus
# operator's objects from the rules of grafana/alerts. With a folder as argument it writes
# them there instead, for the test that compares.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:-$here}
kubectl=${QUARTET_KUBECTL:-$("$here/../tests/kube-apiserver/build.sh")/kubectl}

# Each file of rules becomes a PrometheusRule, whose spec is the indented text of the file.
rules() {
  echo "# Written by \`make manifests\` from grafana/alerts; do not edit."
  local file name
  for file in "$here"/../grafana/alerts/*.yaml; do
    [ -f "$file" ] || continue
    name=$(basename "$file" .yaml)
    cat <<EOF
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: quartet-${name#quartet-}
  namespace: kube-system
  labels:
    app.kubernetes.io/name: quartet
    app.kubernetes.io/part-of: quartet
spec:
EOF
    sed -e '/^---$/d' -e '/./s/^/  /' "$file"
  done
}

component=components/prometheus-operator
mkdir -p "$out/$component" "$out/rendered"
rules > "$out/$component/rules.yaml"

rm -f "$out"/rendered/*.yaml
find "$here/overlays" -name kustomization.yaml | sort | while read -r file; do
  folder=${file%/kustomization.yaml}
  overlay=${folder#"$here/overlays/"}
  {
    echo "# Written by \`make manifests\` from manifests/overlays/$overlay; do not edit."
    objects=$("$kubectl" kustomize "$folder")
    printf '%s\n' "$objects"
    # kustomize does not accept an object twice, so the overlays of single programs leave it to the one who combines them.
    if ! grep -q '^  name: quartet-guard$' <<< "$objects"; then
      echo "---"
      "$kubectl" kustomize "$here/guard"
    fi
  } > "$out/rendered/${overlay//\//-}.yaml"
done
