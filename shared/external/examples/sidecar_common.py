"""The common code of the sidecar's parts."""

import json

from google.protobuf import any_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status

from quartet.cloud.v1 import cloud_pb2 as pb

SCHEME = "metal"
PAGE = 500


class Unreadable(Exception):
    """The file cannot be read, so lookups fail. This does not prove an absence."""


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


def error(kind, message, subject):
    """Returns the answer about one load balancer or route that failed."""
    return {"error": pb.Error(kind=kind, message=message, subject=subject)}


def same(owner, other):
    """UIDs identify; names are for people."""
    return (owner.cluster.uid, owner.uid) == (other.cluster.uid, other.uid)


class Terms:
    """The latest term of each cluster, so that a former leader can be refused."""

    def __init__(self):
        self.latest = {}

    def stale(self, cluster, context):
        """Returns True if a newer leader of this cluster has made a change."""
        term = int(dict(context.invocation_metadata()).get("quartet-term", 0))
        latest = self.latest.get(cluster.uid, 0)
        if term:
            self.latest[cluster.uid] = max(term, latest)
        return 0 < term < latest
