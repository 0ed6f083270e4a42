//go:build tools

// Package tools keeps what build.sh builds among the requirements of go.mod.
package tools

import _ "k8s.io/cloud-provider-openstack/cmd/openstack-cloud-controller-manager"
