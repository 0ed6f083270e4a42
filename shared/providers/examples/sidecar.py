"""A provider for machines that are listed in a file, as a side-car in Python.

    pip install grpcio grpcio-tools grpcio-status
    python -m grpc_tools.protoc -I shared/providers/proto --python_out=. --grpc_python_out=. \
        shared/providers/proto/quartet/cloud/v1/cloud.proto
    PYTHONPATH=. python shared/providers/examples/sidecar.py machines.json unix:///tmp/cloud.sock

machines.json: {"rack1-1": {"name": "node-1", "zone": "rack1", "addresses": ["10.0.0.1"]}}
"""

import concurrent.futures
import json
import signal
import sys

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status

from quartet.cloud.v1 import cloud_pb2 as pb
from quartet.cloud.v1 import cloud_pb2_grpc as services

SCHEME = "metal"
PAGE = 500


class Unreadable(Exception):
    """The file cannot be read, so lookups fail: this is no proof of absence."""


def machines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from error


def fail(context, kind, code, message):
    """Ends the whole call with a typed error."""
    detail = any_pb2.Any()
    detail.Pack(pb.Error(kind=kind, message=message))
    status = status_pb2.Status(code=code.value[0], message=message, details=[detail])
    context.abort_with_status(rpc_status.to_status(status))


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
    """The answer about one node. `known` was read for this request: no cache is involved."""
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
    def __init__(self, path):
        self.path = path

    def Describe(self, request, context):
        return pb.DescribeResponse(
            provider="metal", schemes=[SCHEME], capabilities=["instances"], protocol_revision=2
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
        known = self.known(context)
        answers = [lookup(known, node) for node in request.nodes]
        return pb.LookupInstancesResponse(answers=answers)

    def StreamLookupInstances(self, request, context):
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


def main():
    path, endpoint = sys.argv[1:]
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    services.add_ProviderServicer_to_server(Provider(path), server)
    services.add_InstancesServicer_to_server(Instances(path), server)
    server.add_insecure_port(endpoint.removeprefix("http://"))
    signal.signal(signal.SIGTERM, lambda *_: server.stop(5))
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
