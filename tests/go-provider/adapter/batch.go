package adapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"quartet.test/go-provider/pb"
)

// batch is a lookup of several nodes. Its questions are asked in phases over all nodes, so that
// a provider that collects requests makes one request of each phase.
type batch struct {
	ctx       context.Context
	instances cloudprovider.InstancesV2
	presence  bool
	nodes     []*lookup
}

// lookup is about one node. A node with an answer is not asked about any more.
type lookup struct {
	// The phases hold guard, because an abandoned call may end at any time.
	guard    sync.Mutex
	node     *v1.Node
	metadata *cloudprovider.InstanceMetadata
	exists   bool
	power    pb.PowerState
	answer   *pb.LookupAnswer
}

func newBatch(ctx context.Context, instances cloudprovider.InstancesV2, request *pb.LookupInstancesRequest) *batch {
	b := &batch{ctx: ctx, instances: instances, presence: request.GetDetail() == pb.Detail_DETAIL_PRESENCE}
	for _, identity := range request.GetNodes() {
		b.nodes = append(b.nodes, &lookup{node: &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: identity.GetName()},
			Spec:       v1.NodeSpec{ProviderID: identity.GetProviderId()},
			Status:     v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{SystemUUID: identity.GetSystemUuid()}},
		}})
	}
	return b
}

func (b *batch) run() {
	// The metadata of a node without a provider ID contain the ID.
	b.phase(func(l *lookup) bool { return l.node.Spec.ProviderID == "" }, b.askMetadata)
	b.phase(func(l *lookup) bool { return true }, b.askExists)
	b.phase(func(l *lookup) bool { return l.metadata == nil && !b.presence }, b.askMetadata)
	b.phase(func(l *lookup) bool { return true }, b.askPower)
}

// phase asks one question about all nodes that have no answer yet. It ends with the context,
// even if the provider ignores that.
func (b *batch) phase(concerns func(*lookup) bool, ask func(*v1.Node) (func(*lookup), error)) {
	var calls sync.WaitGroup
	free := make(chan struct{}, parallel)
	for _, l := range b.nodes {
		l.guard.Lock()
		open := l.answer == nil && concerns(l)
		node := l.node.DeepCopy()
		l.guard.Unlock()
		if !open {
			continue
		}
		calls.Go(func() {
			select {
			case free <- struct{}{}:
				defer func() { <-free }()
			case <-b.ctx.Done():
				return
			}
			learn, err := recovered(ask, node)
			l.guard.Lock()
			defer l.guard.Unlock()
			switch {
			case l.answer != nil: // It has come too late.
			case err != nil:
				l.answer = failure(node.Name, err)
			default:
				learn(l)
			}
		})
	}
	ended := make(chan struct{})
	go func() { calls.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-b.ctx.Done():
	}
}

// recovered turns a panic of the provider into an error of this node.
func recovered(ask func(*v1.Node) (func(*lookup), error), node *v1.Node) (learn func(*lookup), err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("the provider panicked: %v", reason)
		}
	}()
	return ask(node)
}

func (b *batch) askMetadata(node *v1.Node) (func(*lookup), error) {
	metadata, err := b.instances.InstanceMetadata(b.ctx, node)
	if err == nil && (metadata == nil || metadata.ProviderID == "" && node.Spec.ProviderID == "") {
		err = cloudprovider.InstanceNotFound
	}
	return func(l *lookup) {
		l.metadata = metadata
		if l.node.Spec.ProviderID == "" {
			l.node.Spec.ProviderID = metadata.ProviderID
		}
	}, err
}

func (b *batch) askExists(node *v1.Node) (func(*lookup), error) {
	exists, err := b.instances.InstanceExists(b.ctx, node)
	return func(l *lookup) {
		if exists {
			l.exists = true
			return
		}
		// False has neither a request ID nor the words of the cloud. lifecycle-ccm requires
		// more of such answers.
		evidence := fmt.Sprintf("InstanceExists of %s returned false", node.Spec.ProviderID)
		l.answer = &pb.LookupAnswer{Node: &node.Name, Answer: &pb.LookupAnswer_Gone{Gone: &pb.Absence{
			Method:   pb.ProofMethod_PROOF_METHOD_PROVIDERS_WORD.Enum(),
			Evidence: &evidence,
		}}}
	}, err
}

func (b *batch) askPower(node *v1.Node) (func(*lookup), error) {
	stopped, err := b.instances.InstanceShutdown(b.ctx, node)
	power := pb.PowerState_POWER_STATE_RUNNING
	switch {
	case errors.Is(err, cloudprovider.NotImplemented):
		power, err = pb.PowerState_POWER_STATE_UNSPECIFIED, nil
	case stopped:
		power = pb.PowerState_POWER_STATE_STOPPED
	}
	return func(l *lookup) { l.answer = found(l, power) }, err
}

// answers returns one answer per node, in their order.
func (b *batch) answers() []*pb.LookupAnswer {
	answers := make([]*pb.LookupAnswer, len(b.nodes))
	for place, l := range b.nodes {
		l.guard.Lock()
		if l.answer == nil {
			l.answer = failure(l.node.Name, context.DeadlineExceeded)
		}
		answers[place] = l.answer
		l.guard.Unlock()
	}
	return answers
}
