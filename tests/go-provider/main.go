// Command go-provider is a sidecar around the fake provider of k8s.io/cloud-provider: it serves
// the machines of a file, which is read for each lookup.
//
//	go-provider --machines machines.json --listen /run/quartet/cloud.sock
//
// machines.json: {"node-1": {"id": "fake://1", "zone": "a", "addresses": ["10.0.0.1"]}}
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"

	"quartet.test/go-provider/adapter"
)

type machine struct {
	ID        string   `json:"id"`
	Zone      string   `json:"zone"`
	Stopped   bool     `json:"stopped"`
	Addresses []string `json:"addresses"`
}

// machines is a cloud of the machines in a file. The fake provider knows one machine, so each
// question is answered by a separate fake for the node.
type machines struct {
	fake.Cloud
	path string
}

func (m *machines) InstancesV2() (cloudprovider.InstancesV2, bool) { return m, true }

func (m *machines) of(node *v1.Node) (*fake.Cloud, error) {
	text, err := os.ReadFile(m.path)
	if err != nil {
		return nil, err
	}
	var all map[string]machine
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	one := &fake.Cloud{EnableInstancesV2: true}
	for name, machine := range all {
		if id := node.Spec.ProviderID; id != machine.ID && (id != "" || name != node.Name) {
			continue
		}
		one.ExistsByProviderID, one.NodeShutdown = true, machine.Stopped
		one.ProviderID = map[types.NodeName]string{types.NodeName(node.Name): machine.ID}
		one.Zone = cloudprovider.Zone{FailureDomain: machine.Zone, Region: "fake"}
		for _, address := range machine.Addresses {
			one.Addresses = append(one.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: address})
		}
	}
	return one, nil
}

func (m *machines) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	one, err := m.of(node)
	if err != nil {
		return false, err
	}
	return one.InstanceExists(ctx, node)
}

func (m *machines) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	one, err := m.of(node)
	if err != nil {
		return false, err
	}
	return one.InstanceShutdown(ctx, node)
}

func (m *machines) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	one, err := m.of(node)
	if err != nil {
		return nil, err
	}
	return one.InstanceMetadata(ctx, node)
}

func main() {
	path := flag.String("machines", "", "file with the machines")
	socket := flag.String("listen", "", "path of the Unix socket")
	flag.Parse()
	_ = os.Remove(*socket)
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	if err := adapter.Register(server, &machines{path: *path}, adapter.Options{Schemes: []string{"fake"}}); err != nil {
		log.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() { <-signals; server.GracefulStop() }()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
