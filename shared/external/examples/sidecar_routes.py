"""The sidecar's routes: one table in memory."""

import ipaddress
import threading

import grpc

from quartet.cloud.v1 import cloud_pb2 as pb
from quartet.cloud.v1 import cloud_pb2_grpc as services
from sidecar_common import PAGE, SCHEME, Terms, Unreadable, error, fail, machines, same

# Fields that are not set have the defaults of the protocol file.
TRAITS = pb.RouteTraits(
    replaces=True,
    compares_version=True,
    target_ids=False,
    target_addresses=True,
    max_batch=100,
)


def network(text):
    """Routes are compared as networks, not as text: host bits have no meaning."""
    return str(ipaddress.ip_network(text, strict=False))


def address_of(wanted):
    """Returns the node's internal address of the destination's family. None if it has none."""
    version = ipaddress.ip_network(wanted.destination).version
    for address in wanted.addresses:
        if address.kind == pb.ADDRESS_KIND_INTERNAL_IP:
            if ipaddress.ip_address(address.address).version == version:
                return str(ipaddress.ip_address(address.address))
    return None


class Routes(services.RoutesServicer):
    """The dictionary stands for a router whose destinations have one target each, and that
    records owners. A real provider keeps nothing itself."""

    ROOM = 1000

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.table = {}
        self.version = 0
        self.terms = Terms()

    def ListRoutes(self, request, context):
        with self.lock:
            # All routes, also those of other owners: the controller finds its own.
            rest = [route for key, route in sorted(self.table.items()) if key > request.page_token]
            page = rest[: min(request.page_size or PAGE, PAGE)]
            return pb.ListRoutesResponse(
                routes=page,
                next_page_token=page[-1].destination if len(page) < len(rest) else "",
                version=str(self.version),
                room=self.ROOM - len(self.table),
            )

    def refusal(self, request, context):
        """Returns the problem of all changes of a call."""
        if self.terms.stale(request.cluster, context):
            return error(pb.ERROR_KIND_STALE, "another replica leads", "term")
        if request.HasField("base") and request.base != str(self.version):
            message = f"the table has version {self.version} now, and not {request.base}"
            return error(pb.ERROR_KIND_BUSY, message, "version")
        return None

    def put(self, destination, wanted, old):
        """Returns the answer to a creation, or with `old` to a replacement."""
        address = address_of(wanted)
        if not address:
            message = f"node {wanted.node.name} has no internal address of this family"
            return error(pb.ERROR_KIND_INVALID, message, destination)
        now = self.table.get(destination)
        if now and now.target.address == address:
            return {"applied": pb.AppliedRoute(route=now)}
        if now and not old:
            message = f"it leads to {now.target.address} already"
            return error(pb.ERROR_KIND_CONFLICT, message, destination)
        if now and not self.is_as_seen(now, old):
            return error(pb.ERROR_KIND_BUSY, "it has changed", destination)
        if not now and len(self.table) >= self.ROOM:
            return error(pb.ERROR_KIND_QUOTA_EXCEEDED, f"{self.ROOM} routes, the quota", "routes")
        target = pb.RouteTarget(address=address)
        route = pb.Route(id=destination, destination=destination, target=target, owner=wanted.owner)
        self.table[destination] = route
        return {"applied": pb.AppliedRoute(route=route)}

    def is_as_seen(self, now, old):
        owners = now.HasField("owner"), old.HasField("owner")
        return now.target == old.target and owners[0] == owners[1] and same(now.owner, old.owner)

    def delete(self, destination, old):
        """A route that is gone counts as deleted. A route that has changed stays."""
        now = self.table.get(destination)
        if now and not self.is_as_seen(now, old):
            return error(pb.ERROR_KIND_BUSY, "it has changed", destination)
        self.table.pop(destination, None)
        return {"applied": pb.AppliedRoute()}

    def change(self, change):
        """Returns the destination of a change, and the function that makes it."""
        if change.HasField("create"):
            destination = network(change.create.destination)
            return destination, lambda: self.put(destination, change.create, None)
        if change.HasField("replace"):
            old, new = change.replace.old, change.replace.new
            destination = network(new.destination)
            return destination, lambda: self.put(destination, new, old)
        destination = network(change.delete.destination)
        return destination, lambda: self.delete(destination, change.delete)

    def ApplyRoutes(self, request, context):
        # One write of the table. A real provider sends its cloud one request here, or as many as
        # that needs, and answers each route as soon as it is known.
        answers, seen = [], set()
        with self.lock:
            refusal, before = self.refusal(request, context), dict(self.table)
            for change in request.changes:
                destination, act = self.change(change)
                if destination in seen:
                    invalid = pb.ERROR_KIND_INVALID
                    answer = error(invalid, "one change for each destination", destination)
                else:
                    answer = refusal or act()
                seen.add(destination)
                answers.append((destination, answer))
            self.version += self.table != before
            version = str(self.version)
        for place, (destination, answer) in enumerate(answers):
            if "applied" in answer:
                answer["applied"].version = version
            yield pb.ApplyRoutesItem(place=place, destination=destination, **answer)

    def FindRouteTargets(self, request, context):
        try:
            known = machines(self.path)
        except Unreadable as unreadable:
            fail(context, pb.ERROR_KIND_UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, str(unreadable))
        if not known:
            # An empty file would prove every target gone.
            message = f"{self.path} lists no machine"
            fail(context, pb.ERROR_KIND_NOT_FOUND, grpc.StatusCode.NOT_FOUND, message)
        addresses = {
            str(ipaddress.ip_address(address))
            for machine in known.values()
            for address in machine.get("addresses", [])
        }
        ids = {f"{SCHEME}://{machine_id}" for machine_id in known}
        names = {machine["name"] for machine in known.values()}
        for place, target in enumerate(request.targets):
            kind = target.WhichOneof("target")
            value = getattr(target, kind)
            if value in {"address": addresses, "instance": ids, "node": names}[kind]:
                answer = {"exists": pb.TargetExists()}
            else:
                by_id = kind == "instance"
                method = pb.PROOF_METHOD_BY_ID if by_id else pb.PROOF_METHOD_BY_NAME
                evidence = f"no machine of the file has the {kind} {value}"
                answer = {"gone": pb.Absence(method=method, evidence=evidence)}
            yield pb.FindRouteTargetsItem(place=place, target=target, **answer)
