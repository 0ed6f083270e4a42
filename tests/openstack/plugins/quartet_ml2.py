"""An ML2 mechanism driver that binds every port without any agent.

Real mechanism drivers bind a port only where a live L2 agent (or an OVN
chassis) has reported for the port's host. Nothing runs on the fake
hypervisors here, so this driver answers in their place: any port with a host
is bound on the first segment of its network and goes ACTIVE at once.
"""

from neutron_lib.api import validators
from neutron_lib.api.definitions import portbindings
from neutron_lib import constants
from neutron_lib.plugins.ml2 import api


def _allow_loopback_routes():
    """Let a router's extra route lead to a network inside 127.0.0.0/8.

    Neutron answers 400 "'127.64.1.0/24' is not a routable CIDR" otherwise.
    Everything else about a route (host bits, next hop on a connected subnet,
    duplicates, quota) is still judged by Neutron.
    """
    real = validators.validate_route_cidr

    def validate_route_cidr(data, valid_values=None):
        msg = real(data, valid_values)
        if msg and 'not a routable CIDR' in msg:
            return None
        return msg

    validators.validate_route_cidr = validate_route_cidr
    validators.validators['type:route_cidr'] = validate_route_cidr


class AgentlessMechanismDriver(api.MechanismDriver):

    def initialize(self):
        _allow_loopback_routes()

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        for segment in context.segments_to_bind:
            context.set_binding(
                segment[api.ID],
                portbindings.VIF_TYPE_OVS,
                {portbindings.CAP_PORT_FILTER: True,
                 portbindings.VIF_DETAILS_CONNECTIVITY:
                     portbindings.CONNECTIVITY_L2},
                status=constants.PORT_STATUS_ACTIVE)
            return

    def try_to_bind_segment_for_agent(self, context, segment, agent):
        return False
