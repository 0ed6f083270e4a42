"""A provider for machines that are listed in a file, and for load balancers and routes in memory,
as a sidecar in Python.

    pip install grpcio grpcio-tools grpcio-status
    python -m grpc_tools.protoc -I shared/external/proto --python_out=. --grpc_python_out=. \
        shared/external/proto/quartet/cloud/v1/cloud.proto
    PYTHONPATH=. python shared/external/examples/sidecar.py machines.json unix:///tmp/cloud.sock

machines.json: {"rack1-1": {"name": "node-1", "zone": "rack1", "addresses": ["10.0.0.1"]}}

With --no-list at the end it is a provider of a cloud that cannot list its machines.
"""

import concurrent.futures
import os
import signal
import sys
import threading

import grpc

from quartet.cloud.v1 import cloud_pb2 as pb
from quartet.cloud.v1 import cloud_pb2_grpc as services
from sidecar_common import PAGE, SCHEME, Terms, Unreadable, error, fail, machines, same
from sidecar_routes import TRAITS, Routes


def describe(machine_id, machine):
    addresses = [
        pb.NodeAddress(kind=pb.ADDRESS_KIND_INTERNAL_IP, address=address)
        for address in machine.get("addresses", [])
    ]
    return pb.Instance(
        provider_id=f"{SCHEME}://{machine_id}",
        name=machine["name"],
        instance_type=machine.get("type"),
        zone=machine.get("zone"),
        addresses=addresses,
        power=pb.POWER_STATE_RUNNING,
    )


def lookup(known, node):
    """Returns the answer about one node. `known` was read for this request, without a cache."""
    if node.provider_id:
        scheme, _, machine_id = node.provider_id.partition("://")
        if scheme != SCHEME:
            return pb.LookupAnswer(node=node.name, not_ours=pb.NotOurs(reason=f"scheme {scheme}"))
        method, found = pb.PROOF_METHOD_BY_ID, [machine_id] if machine_id in known else []
        evidence = f"no machine {machine_id} in the file"
    else:
        method = pb.PROOF_METHOD_BY_NAME
        found = [key for key, machine in known.items() if machine["name"] == node.name]
        evidence = f"no machine named {node.name} in the file"
    if not found:
        gone = pb.Absence(method=method, evidence=evidence)
        return pb.LookupAnswer(node=node.name, gone=gone)
    if len(found) > 1:
        message = f"{len(found)} machines are named {node.name}"
        error = pb.Error(kind=pb.ERROR_KIND_CONFLICT, message=message)
        return pb.LookupAnswer(node=node.name, error=error)
    return pb.LookupAnswer(node=node.name, found=describe(found[0], known[found[0]]))


class Provider(services.ProviderServicer):
    def __init__(self, path, lists):
        self.path, self.lists = path, lists

    def Describe(self, request, context):
        return pb.DescribeResponse(
            provider="metal",
            schemes=[SCHEME],
            capabilities=["instances", "load-balancers", "routes"],
            # Another text means another cloud: controllers stop until a person approves it.
            identity="metal, " + os.path.abspath(self.path),
            # False: ListInstances is never called. Saying so is required: UNIMPLEMENTED alone
            # is taken for a fault, because proxies answer it as well.
            lists=self.lists,
            load_balancers=pb.LoadBalancerTraits(
                stores_digest=True, max_batch=100, asks_before_replacing=True
            ),
            routes=TRAITS,
        )

    def Health(self, request, context):
        try:
            machines(self.path)
        except Unreadable as error:
            fail(context, pb.ERROR_KIND_UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, str(error))
        return pb.HealthResponse()


class Instances(services.InstancesServicer):
    def __init__(self, path):
        self.path = path

    def known(self, context):
        try:
            return machines(self.path)
        except Unreadable as error:
            fail(context, pb.ERROR_KIND_UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, str(error))

    def LookupInstances(self, request, context):
        # Each answer is sent as soon as it is known: a slow lookup does not delay the others.
        known = self.known(context)
        for place, node in enumerate(request.nodes):
            yield pb.LookupInstancesItem(place=place, answer=lookup(known, node))

    def ListInstances(self, request, context):
        known = self.known(context)
        # The token is the last ID of a page and not an index, so that machines that are added
        # or removed between two pages shift no entries.
        rest = sorted(key for key in known if key > request.page_token)
        page = rest[: min(request.page_size or PAGE, PAGE)]
        return pb.ListInstancesResponse(
            instances=[describe(key, known[key]) for key in page],
            next_page_token=page[-1] if len(page) < len(rest) else "",
        )


def conflict(balancer_id, owner):
    message = f"it does not belong to {owner.namespace}/{owner.name}"
    return error(pb.ERROR_KIND_CONFLICT, message, f"load balancer {balancer_id}")


def as_stored(member):
    """Returns a member with the one address for connections. None if it has no address."""
    for kind in (pb.ADDRESS_KIND_INTERNAL_IP, pb.ADDRESS_KIND_EXTERNAL_IP):
        for address in member.addresses:
            if address.kind == kind and "." in address.address:
                return pb.Member(node=member.node, addresses=[address])
    return None


def after_change(members, change, lists):
    """Members in neither list stay, and also the last member and one that has no address now.
    Load balancers with the same members share one of the request's lists."""
    wanted = lists[change.present_list].members if change.HasField("present_list") else []
    present = {member.node for member in wanted}
    absent = {member.node for member in change.absent} - present
    after = {member.node: member for member in members if member.node not in absent}
    stored = [as_stored(member) for member in wanted]
    after.update({member.node: member for member in stored if member})
    return list(after.values()) or list(members[-1:])


def why_none(change, lists):
    """Returns why none of the named nodes can be a member; None if one can, or if none is named."""
    wanted = lists[change.present_list].members if change.HasField("present_list") else []
    if not wanted or any(as_stored(member) for member in wanted):
        return None
    return f"none of {len(wanted)} nodes has an IPv4 address"


def wrong(front_end):
    """Returns the requests that these load balancers cannot meet."""
    invalid = pb.ERROR_KIND_INVALID
    if list(front_end.families) != [pb.IP_FAMILY_V4]:
        return error(invalid, "only IPv4 is offered", "families")
    if front_end.address:
        return error(invalid, "addresses cannot be chosen", f"address {front_end.address}")
    if not front_end.ports:
        return error(invalid, "a load balancer needs a port", "ports")
    for port in front_end.ports:
        if port.protocol != pb.TRANSPORT_PROTOCOL_TCP:
            return error(invalid, "only TCP is offered", f"port {port.port}")
    return None


class Balancer:
    """One load balancer, as a cloud would store it."""

    def __init__(self, number, front_end):
        self.id = f"lb-{number:05}"
        self.ip = f"198.51.{100 + number // 250 % 100}.{number % 250 + 1}"
        self.front_end = front_end
        self.members = []
        self.why_empty = None
        self.version = 0

    def configured(self, front_end):
        """Returns True if it is as wanted. The state decides: the digest does not count."""
        now, wanted = pb.FrontEnd(), pb.FrontEnd()
        now.CopyFrom(self.front_end)
        wanted.CopyFrom(front_end)
        now.ClearField("digest")
        wanted.ClearField("digest")
        return now == wanted

    def pools(self):
        """Returns its members by port, the same for all. A port without a node port has none."""
        ports = (port for port in self.front_end.ports if port.member_port)
        pool = lambda port: pb.Pool(
            protocol=port.protocol,
            port=port.port,
            members=len(self.members),
            why_empty=None if self.members else self.why_empty,
        )
        return pb.PoolList(pools=[pool(port) for port in ports])

    def show(self, cluster, depth):
        owner = self.front_end.owner
        ours = owner.cluster.uid == cluster.uid
        shown = pb.LoadBalancer(
            id=self.id,
            name=f"{owner.cluster.name}_{owner.namespace}_{owner.name}",
            owner=owner,
            title=pb.LOAD_BALANCER_TITLE_OURS if ours else pb.LOAD_BALANCER_TITLE_FOREIGN,
            digest=self.front_end.digest,
            phase=pb.LOAD_BALANCER_PHASE_READY,
            version=str(self.version),
            ingress=[pb.Ingress(ip=self.ip)],
        )
        if depth == pb.DEPTH_MEMBERS:
            shown.members.CopyFrom(pb.MemberList(members=self.members))
            shown.pools.CopyFrom(self.pools())
        return shown


class LoadBalancers(services.LoadBalancersServicer):
    """The dictionary stands for a cloud that carries out each change at once. A real provider
    keeps nothing itself, and answers InProgress while its cloud works."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}
        self.created = 0
        self.terms = Terms()

    def of(self, owner):
        mine = (one for one in self.all.values() if same(one.front_end.owner, owner))
        return next(mine, None)

    def change(self, items, owner_of, act, message, context):
        """Yields the answers to a call that changes something, each as soon as it is known."""
        seen = []
        for place, item in enumerate(items):
            owner = owner_of(item)
            with self.lock:
                if any(same(owner, other) for other in seen):
                    answer = error(pb.ERROR_KIND_INVALID, "one item for each owner", "owner")
                elif self.terms.stale(owner.cluster, context):
                    answer = error(pb.ERROR_KIND_STALE, "another replica leads", "term")
                else:
                    answer = act(item)
            seen.append(owner)
            yield message(place=place, owner_uid=owner.uid, **answer)

    def ListLoadBalancers(self, request, context):
        def asked(one):
            if request.scope == pb.LIST_SCOPE_IDS:
                return one.id in request.ids
            ours = one.front_end.owner.cluster.uid == request.cluster.uid
            return ours or request.scope != pb.LIST_SCOPE_CLUSTER

        with self.lock:
            rest = [one for key, one in sorted(self.all.items()) if key > request.page_token]
            rest = [one for one in rest if asked(one)]
            page = rest[: min(request.page_size or PAGE, PAGE)]
            return pb.ListLoadBalancersResponse(
                load_balancers=[one.show(request.cluster, request.depth) for one in page],
                next_page_token=page[-1].id if len(page) < len(rest) else "",
            )

    def plan(self, wanted):
        """Returns the owner's load balancer, if there is one, and the problem of the request."""
        owner = wanted.front_end.owner
        mine, known = self.of(owner), self.all.get(wanted.known)
        if known and known is not mine:
            return None, conflict(wanted.known, owner)
        if wanted.adopt and not (mine and mine.id == wanted.adopt):
            return None, conflict(wanted.adopt, owner)
        return mine, wrong(wanted.front_end)

    @staticmethod
    def lost(mine, wanted):
        """Returns True if only a new load balancer helps, but is forbidden. Here none fails, and
        the dictionary knows all of them: a real provider asks its cloud for exactly this ID."""
        return not mine and wanted.known and wanted.keep

    def ensure(self, wanted, lists):
        mine, problem = self.plan(wanted)
        if problem:
            return problem
        front_end = wanted.front_end
        if self.lost(mine, wanted):
            reason = f"there is no load balancer {wanted.known}"
            return {"lost": pb.Lost(reason=reason, gone=True)}
        if not mine:
            self.created += 1
            mine = Balancer(self.created, front_end)
            self.all[mine.id] = mine
        members = after_change(mine.members, wanted.members, lists)
        if not (mine.version and mine.configured(front_end) and members == mine.members):
            mine.front_end, mine.members, mine.version = front_end, members, mine.version + 1
        mine.why_empty = why_none(wanted.members, lists)
        return {"done": mine.show(front_end.owner.cluster, pb.DEPTH_MEMBERS)}

    def EnsureLoadBalancers(self, request, context):
        item = pb.EnsureLoadBalancersItem
        owner = lambda wanted: wanted.front_end.owner
        ensure = lambda wanted: self.ensure(wanted, request.member_lists)
        yield from self.change(request.wanted, owner, ensure, item, context)

    def PreviewLoadBalancers(self, request, context):
        for place, wanted in enumerate(request.wanted):
            with self.lock:
                mine, answer = self.plan(wanted)
                lines = []
                if self.lost(mine, wanted):
                    pass
                elif not mine:
                    lines.append("create it")
                elif not mine.configured(wanted.front_end):
                    lines.append("set its configuration")
                elif after_change(mine.members, wanted.members, request.member_lists) != mine.members:
                    lines.append("set its members")
            answer = answer or {"changes": pb.Changes(lines=lines)}
            uid = wanted.front_end.owner.uid
            yield pb.PreviewLoadBalancersItem(place=place, owner_uid=uid, **answer)

    def set_members(self, change, lists):
        one = self.all.get(change.id)
        if not one:
            subject = f"load balancer {change.id}"
            return error(pb.ERROR_KIND_NOT_FOUND, "it does not exist", subject)
        if not same(one.front_end.owner, change.owner):
            return conflict(change.id, change.owner)
        members = after_change(one.members, change.members, lists)
        changed = members != one.members
        if changed:
            one.members, one.version = members, one.version + 1
        one.why_empty = why_none(change.members, lists)
        done = pb.MembersSet(version=str(one.version), changed=changed, pools=one.pools())
        return {"done": done}

    def SetMembers(self, request, context):
        item, owner = pb.SetMembersItem, lambda change: change.owner
        set_members = lambda change: self.set_members(change, request.member_lists)
        yield from self.change(request.changes, owner, set_members, item, context)

    def delete(self, unwanted):
        owner, known = unwanted.owner, self.all.get(unwanted.known)
        # An owner has one load balancer here, so an existing one is not a duplicate. If addresses can
        # outlive load balancers, keep unwanted.address, or all if unwanted.settings_unknown is set.
        if known and (unwanted.duplicate or not same(known.front_end.owner, owner)):
            return conflict(unwanted.known, owner)
        mine = self.of(owner)
        if mine and not unwanted.duplicate:
            del self.all[mine.id]
        if unwanted.known:
            method, evidence = pb.PROOF_METHOD_BY_ID, f"no load balancer {unwanted.known}"
        else:
            method, evidence = pb.PROOF_METHOD_BY_OWNER, f"no load balancer of {owner.uid}"
        return {"gone": pb.Absence(method=method, evidence=evidence)}

    def DeleteLoadBalancers(self, request, context):
        item, owner = pb.DeleteLoadBalancersItem, lambda unwanted: unwanted.owner
        yield from self.change(request.unwanted, owner, self.delete, item, context)


def main():
    path, endpoint, *options = sys.argv[1:]
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    services.add_ProviderServicer_to_server(Provider(path, "--no-list" not in options), server)
    services.add_InstancesServicer_to_server(Instances(path), server)
    services.add_LoadBalancersServicer_to_server(LoadBalancers(), server)
    services.add_RoutesServicer_to_server(Routes(path), server)
    server.add_insecure_port(endpoint.removeprefix("http://"))
    signal.signal(signal.SIGTERM, lambda *_: server.stop(5))
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
