"""seed.py identity|resources: creates what a cloud's operator would set up."""

import argparse
import json
import time

import openstack

p = argparse.ArgumentParser()
p.add_argument('what', choices=['identity', 'resources'])
p.add_argument('--ip', required=True)
p.add_argument('--password', required=True)
p.add_argument('--hosts', required=True)
p.add_argument('--zones', required=True)
p.add_argument('--out', required=True)
p.add_argument('--region', required=True)
a = p.parse_args()


def connect(user, project):
    return openstack.connect(
        auth=dict(auth_url=f'http://{a.ip}:5000/v3', username=user,
                  password=a.password, project_name=project,
                  user_domain_name='Default', project_domain_name='Default'),
        region_name=a.region)


admin = connect('admin', 'admin')


def identity():
    ident = admin.identity

    def role(name):
        return ident.find_role(name) or ident.create_role(name=name)

    def project(name):
        return (ident.find_project(name) or
                ident.create_project(name=name, domain_id='default'))

    def user(name, project):
        return (ident.find_user(name) or
                ident.create_user(name=name, password=a.password,
                                  domain_id='default',
                                  default_project_id=project.id))

    def grant(user, project, *roles):
        for r in roles:
            ident.put(f'/projects/{project.id}/users/{user.id}'
                      f'/roles/{role(r).id}')

    services = [('placement', 'placement', f'http://{a.ip}:8778'),
                ('image', 'glance', f'http://{a.ip}:9292'),
                ('compute', 'nova', f'http://{a.ip}:8774/v2.1'),
                ('network', 'neutron', f'http://{a.ip}:9696'),
                ('load-balancer', 'octavia', f'http://{a.ip}:9876')]
    member = ['member', 'reader', 'load-balancer_member']
    extra = ['member', 'load-balancer_admin']

    service = project('service')
    for _, name, _ in services:
        grant(user(name, service), service, 'admin', 'service')
    for name in ('k8s', 'other'):
        tenant = project(name)
        grant(user(name, tenant), tenant, *member)
    grant(ident.find_user('admin'), ident.find_project('admin'), *extra)
    have = {s.type for s in ident.services()}
    for kind, name, url in services:
        if kind in have:
            continue
        s = ident.create_service(type=kind, name=name)
        for interface in ('public', 'internal', 'admin'):
            ident.create_endpoint(service_id=s.id, interface=interface,
                                  url=url, region_id=a.region)


def resources():
    for name, cpus, ram, disk in (
            ('m1.tiny', 1, 512, 1), ('m1.small', 1, 2048, 20),
            ('m1.medium', 2, 4096, 40), ('m1.large', 4, 8192, 80)):
        if not admin.compute.find_flavor(name):
            admin.compute.create_flavor(name=name, vcpus=cpus, ram=ram,
                                        disk=disk)
    if not admin.image.find_image('fake'):
        admin.create_image('fake', data=b'\0' * 1024, disk_format='raw',
                           container_format='bare', visibility='public',
                           tags=['amphora'], wait=True)
    for zone, host in zip(a.zones.split(','), a.hosts.split(',')):
        if not any(g.name == zone for g in admin.compute.aggregates()):
            g = admin.compute.create_aggregate(name=zone,
                                               availability_zone=zone)
            admin.compute.add_host_to_aggregate(g, host)

    net = admin.network
    # Every address is in 127.0.0.0/8, which Neutron accepts with DHCP off.
    public = net.find_network('public') or net.create_network(
        name='public', is_router_external=True,
        provider_network_type='flat', provider_physical_network='public')
    if not net.find_subnet('public'):
        net.create_subnet(name='public', network_id=public.id, ip_version=4,
                          cidr='127.33.0.0/16', gateway_ip='127.33.0.1',
                          is_dhcp_enabled=False)
    k8s = connect('k8s', 'k8s').network
    subnet = tenant_network(k8s, 'k8s', 32)
    tenant_network(connect('other', 'other').network, 'other', 35)
    if not k8s.find_router('k8s'):
        router = k8s.create_router(
            name='k8s', external_gateway_info={'network_id': public.id})
        k8s.add_interface_to_router(router, subnet_id=subnet.id)
    amphorae()


def tenant_network(net, name, number):
    """Creates a project's network with the project's name. Returns the subnet."""
    private = net.find_network(name) or net.create_network(name=name)
    return net.find_subnet(name) or net.create_subnet(
        name=name, network_id=private.id, ip_version=4,
        cidr=f'127.{number}.0.0/16', gateway_ip=f'127.{number}.0.1',
        is_dhcp_enabled=False)


def amphorae():
    octavia = connect('octavia', 'service').network
    net = octavia.find_network('lb-mgmt') or octavia.create_network(
        name='lb-mgmt')
    if not octavia.find_subnet('lb-mgmt'):
        octavia.create_subnet(name='lb-mgmt', network_id=net.id,
                              ip_version=4, cidr='127.34.0.0/16',
                              gateway_ip=None, is_dhcp_enabled=False)
    flavor = (admin.compute.find_flavor('amphora') or
              admin.compute.create_flavor(name='amphora', vcpus=1, ram=64,
                                          disk=1, is_public=True))
    with open(a.out, 'w') as f:
        json.dump({'amp_flavor_id': flavor.id, 'amp_boot_network_list': net.id,
                   'amp_image_tag': 'amphora'}, f)


for attempt in range(5):
    try:
        {'identity': identity, 'resources': resources}[a.what]()
        break
    except openstack.exceptions.SDKException:
        if attempt == 4:
            raise
        time.sleep(2)
