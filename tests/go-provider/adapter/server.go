// Package adapter serves a provider of k8s.io/cloud-provider over Quartet's protocol: instances
// only, without a list. It is the pattern for existing Go providers.
package adapter

import (
	"context"
	"time"

	"google.golang.org/grpc"
	cloudprovider "k8s.io/cloud-provider"

	"quartet.test/go-provider/pb"
)

const (
	// maxBatch is the maximum number of nodes in one lookup, which the provider answers within seconds.
	maxBatch = 100
	// parallel is the maximum number of concurrent calls to the provider.
	parallel = 20
)

// Options are the properties that the Go interface does not have.
type Options struct {
	// Schemes are the schemes of the provider IDs. They need not be the provider's name.
	Schemes []string
}

// Register adds the services to a gRPC server.
func Register(server *grpc.Server, cloud cloudprovider.Interface, options Options) error {
	instances, offered := cloud.InstancesV2()
	if !offered {
		return errNoInstances(cloud.ProviderName())
	}
	pb.RegisterProviderServer(server, &provider{cloud: cloud, options: options})
	pb.RegisterInstancesServer(server, &lookups{instances: instances})
	return nil
}

type provider struct {
	pb.UnimplementedProviderServer
	cloud   cloudprovider.Interface
	options Options
}

func (p *provider) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return &pb.DescribeResponse{
		Provider:     new(p.cloud.ProviderName()),
		Schemes:      p.options.Schemes,
		Capabilities: []string{"instances"},
		MaxBatch:     new(uint32(maxBatch)),
		// cloudprovider.Interface has no list. ListInstances stays unimplemented.
		Lists: new(false),
		// Some providers omit labels that a node has.
		LabelsOnlyAdd: new(true),
	}, nil
}

// Health shows that this process answers: the Go interface has no cheap call for more.
func (p *provider) Health(context.Context, *pb.HealthRequest) (*pb.HealthResponse, error) {
	return &pb.HealthResponse{}, nil
}

// lookups implements LookupInstances. The answers of a batch come together.
type lookups struct {
	pb.UnimplementedInstancesServer
	instances cloudprovider.InstancesV2
}

func (l *lookups) LookupInstances(request *pb.LookupInstancesRequest, stream grpc.ServerStreamingServer[pb.LookupInstancesItem]) error {
	ctx := stream.Context()
	// The answer must arrive before the client gives up.
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/20))
		defer cancel()
	}
	batch := newBatch(ctx, l.instances, request)
	batch.run()
	for place, answer := range batch.answers() {
		if err := stream.Send(&pb.LookupInstancesItem{Place: new(uint32(place)), Answer: answer}); err != nil {
			return err
		}
	}
	return nil
}
