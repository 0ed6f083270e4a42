// Command kubelet is the kubelet's own code on a fake container runtime: it
// registers its node, reports its status and renews its Lease as on a machine, but
// does not need containers, cgroups or root.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-client/pkg"
	fakecri "k8s.io/cri-client/pkg/fake"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

// hardware is what the kubelet reads about its machine.
type hardware struct {
	cadvisortest.Fake
	systemUUID string
}

func (h *hardware) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	info, err := h.Fake.MachineInfo()
	if err == nil {
		info.SystemUUID = h.systemUUID
	}
	return info, err
}

func main() {
	// Packages of the kubelet declare their own flags on flag.CommandLine.
	flags := flag.NewFlagSet("kubelet", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "address and credentials of the API server")
	name := flags.String("hostname-override", "", "name of the node")
	provider := flags.String("cloud-provider", "external", "external, or empty")
	uuid := flags.String("system-uuid", "", "system UUID of the machine")
	_ = flags.Parse(os.Args[1:])

	cluster, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatalf("kubeconfig: %v", err)
	}
	run(context.Background(), cluster, *name, *provider, *uuid)
}

func run(ctx context.Context, cluster *rest.Config, name, provider, uuid string) {
	flags, config := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{NodeName: name, MaxPods: 110})
	flags.CloudProvider = provider
	config.ProviderID = ""
	config.EnableServer = false

	endpoint, err := fakecri.GenerateEndpoint()
	if err != nil {
		log.Fatalf("container runtime: %v", err)
	}
	runtime := fakecri.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		log.Fatalf("container runtime: %v", err)
	}
	service, err := cri.NewRemoteRuntimeService(ctx, endpoint, 15*time.Second, noop.NewTracerProvider(), false)
	if err != nil {
		log.Fatalf("container runtime: %v", err)
	}

	// Rates and time-out are the kubelet's.
	cluster.UserAgent = "kubelet"
	cluster.ContentType = "application/vnd.kubernetes.protobuf"
	cluster.QPS, cluster.Burst = float32(config.KubeAPIQPS), int(config.KubeAPIBurst)
	heartbeat := rest.CopyConfig(cluster)
	heartbeat.QPS, heartbeat.Timeout = -1, config.NodeStatusUpdateFrequency.Duration
	machine := &hardware{Fake: cadvisortest.Fake{NodeName: name}, systemUUID: uuid}
	kubemark.NewHollowKubelet(flags, config,
		kubernetes.NewForConfigOrDie(cluster), kubernetes.NewForConfigOrDie(heartbeat),
		machine, runtime.ImageService, service, cm.NewStubContainerManager()).Run(ctx)
}
