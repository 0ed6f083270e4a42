package main

import (
	"fmt"
	"strings"
)

// kustomization makes a ConfigMap of each dashboard, as the sidecar of Grafana looks for
// them. Each has its own, because `kubectl apply` stores the object in an annotation of at most 256 KiB.
func kustomization(names []string) []byte {
	var text strings.Builder
	text.WriteString(`# Written by ` + "`make dashboards`" + `. The dashboards as ConfigMaps, for Grafana's sidecar:
#   kubectl apply -k grafana -n <namespace of Grafana>
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
generatorOptions:
  disableNameSuffixHash: true
  labels:
    grafana_dashboard: "1"
    app.kubernetes.io/part-of: quartet
  annotations:
    grafana_folder: Quartet
configMapGenerator:
`)
	for _, name := range names {
		fmt.Fprintf(&text, "  - name: quartet-dashboard-%s\n    files:\n      - quartet-%s.json=dashboards/%s.json\n", name, name, name)
	}
	return []byte(text.String())
}
