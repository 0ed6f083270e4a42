"""An Octavia compute driver whose amphorae are nothing but Neutron ports.

Octavia's own no-op compute driver hands out ports that Neutron never heard
of, so it only goes with the no-op network driver, and then a load balancer's
VIP is not a Neutron port either. This one does to ports what Nova would do, so that
Octavia's real network driver (allowed address pairs) works unchanged: real VIP
ports, VRRP ports and security groups, without a server per load balancer.
"""

import hashlib
import types

from keystoneauth1 import adapter
from oslo_config import cfg

from octavia.common import keystone
from octavia.compute.drivers.noop_driver import driver

OWNER = 'compute:quartet'
HOST = 'amphorae'


class PortsOnlyComputeDriver(driver.NoopComputeDriver):

    @property
    def neutron(self):
        if not hasattr(self, '_neutron'):
            self._neutron = adapter.Adapter(
                keystone.KeystoneSession().get_session(),
                service_type='network', interface='public',
                region_name=cfg.CONF.neutron.region_name)
        return self._neutron

    def get_amphora(self, compute_id, *args, **kwargs):
        amphora, fault = super().get_amphora(compute_id, *args, **kwargs)
        a, b = hashlib.sha256(compute_id.encode()).digest()[:2]
        amphora.lb_network_ip = f'127.34.{a}.{b}'
        return amphora, fault

    def attach_network_or_port(self, compute_id, network_id=None,
                               ip_address=None, port_id=None):
        if port_id:
            r = self.neutron.put(f'/v2.0/ports/{port_id}', json={'port': {
                'device_id': compute_id, 'binding:host_id': HOST}})
        else:
            port = {'network_id': network_id, 'device_id': compute_id,
                    'device_owner': OWNER, 'binding:host_id': HOST}
            if ip_address:
                port['fixed_ips'] = [{'ip_address': ip_address}]
            r = self.neutron.post('/v2.0/ports', json={'port': port})
        port = r.json()['port']
        return types.SimpleNamespace(id=port['id'], port_id=port['id'],
                                     net_id=port['network_id'],
                                     fixed_ips=port['fixed_ips'])

    def _release(self, port):
        if port['device_owner'] == OWNER:
            self.neutron.delete(f'/v2.0/ports/{port["id"]}',
                                raise_exc=False)
        else:
            self.neutron.put(f'/v2.0/ports/{port["id"]}', raise_exc=False,
                             json={'port': {'device_id': '',
                                            'binding:host_id': ''}})

    def detach_port(self, compute_id, port_id):
        r = self.neutron.get(f'/v2.0/ports/{port_id}', raise_exc=False)
        if r.ok:
            self._release(r.json()['port'])

    def delete(self, compute_id):
        super().delete(compute_id)
        # An amphora whose creation was interrupted has no ID. Without a value
        # Neutron lists the ports of all devices, routers included.
        if not compute_id:
            return
        r = self.neutron.get('/v2.0/ports', params={'device_id': compute_id})
        for port in r.json()['ports']:
            self._release(port)
