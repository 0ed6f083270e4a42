package adapter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"quartet.test/go-provider/pb"
)

var kinds = map[v1.NodeAddressType]pb.AddressKind{
	v1.NodeInternalIP:  pb.AddressKind_ADDRESS_KIND_INTERNAL_IP,
	v1.NodeExternalIP:  pb.AddressKind_ADDRESS_KIND_EXTERNAL_IP,
	v1.NodeInternalDNS: pb.AddressKind_ADDRESS_KIND_INTERNAL_DNS,
	v1.NodeExternalDNS: pb.AddressKind_ADDRESS_KIND_EXTERNAL_DNS,
	v1.NodeHostName:    pb.AddressKind_ADDRESS_KIND_HOSTNAME,
}

// found is the answer about a node whose instance exists.
func found(l *lookup, power pb.PowerState) *pb.LookupAnswer {
	// The question contains the node's own spelling of the ID, which the provider may not return.
	instance := &pb.Instance{ProviderId: &l.node.Spec.ProviderID, Name: &l.node.Name, Power: power.Enum()}
	if m := l.metadata; m != nil {
		if m.ProviderID != "" && m.ProviderID != l.node.Spec.ProviderID {
			instance.OtherIds = []string{m.ProviderID}
		}
		instance.InstanceType, instance.Zone, instance.Region = &m.InstanceType, &m.Zone, &m.Region
		instance.Labels = m.AdditionalLabels
		for _, address := range m.NodeAddresses {
			if kind, known := kinds[address.Type]; known {
				instance.Addresses = append(instance.Addresses, &pb.NodeAddress{Kind: kind.Enum(), Address: &address.Address})
			}
		}
	}
	return &pb.LookupAnswer{Node: &l.node.Name, Answer: &pb.LookupAnswer_Found{Found: instance}}
}

// failure is the answer about a node of which nothing is known. The errors of Go providers are
// texts, so an unknown error is worth another try. A provider should distinguish more kinds by
// the types of its own library.
func failure(node string, err error) *pb.LookupAnswer {
	kind := pb.ErrorKind_ERROR_KIND_UNAVAILABLE
	switch {
	// This is not "gone": providers also say so about an instance that lacks a tag.
	case errors.Is(err, cloudprovider.InstanceNotFound):
		kind = pb.ErrorKind_ERROR_KIND_NOT_FOUND
	case errors.Is(err, cloudprovider.NotImplemented):
		kind = pb.ErrorKind_ERROR_KIND_UNSUPPORTED
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		kind = pb.ErrorKind_ERROR_KIND_TIMEOUT
	}
	message := strings.Join(strings.Fields(err.Error()), " ")
	return &pb.LookupAnswer{Node: &node, Answer: &pb.LookupAnswer_Error{Error: &pb.Error{Kind: kind.Enum(), Message: &message}}}
}

func errNoInstances(provider string) error {
	return fmt.Errorf("the provider %q does not implement InstancesV2", provider)
}
