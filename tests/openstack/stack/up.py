"""up: installs missing packages, initialises empty databases, starts services that do not
run. May be repeated at any time."""

import hashlib
import json
import shutil
import socket
import sys

import configuration
import ground
import migrations
import options
import packages
import procs
from options import HERE, HOSTS, IP, PASSWORD, REGION, ZONES
from programs import api, config_files, daemon, environment, main_of
from steps import answers, run, say, wait

FOLDERS = ['log', 'run', 'conf', 'tmp', 'rabbit', 'keystone', 'glance/images',
           'glance/staging', 'glance/tasks', 'nova/lock', 'neutron/lock',
           'octavia/lock', 'octavia/certs', 'octavia/certstore',
           *(f'nova/{host}/lock' for host in HOSTS)]
PORTS = {'epmd': 4369, 'rabbitmq': 5672, 'keystone-api': 5000,
         'placement-api': 8778, 'glance-api': 9292, 'nova-api': 8774,
         'neutron-api': 9696, 'octavia-api': 9876}


def made_with(a):
    """The inputs of the data: if they change, the data is created again."""
    content = hashlib.sha256()
    names = ['stack/migrations.py', 'stack/options.py', 'helpers/seed.py']
    if a.flavour == 'pypi':
        names.append('requirements.txt')
    for name in names:
        content.update((HERE / name).read_bytes())
    return json.dumps({'flavour': a.flavour,
                       'made': content.hexdigest()}) + '\n'


def prepare(a):
    """The folder of the state, emptied if its data does not match."""
    mark = a.state / 'made-with.json'
    wanted = made_with(a)
    other = mark.exists() and mark.read_text() != wanted
    if other or a.fresh:
        if procs.running():
            why = 'it was made otherwise than now wanted' if other else '--fresh'
            sys.exit(f'{a.state} is in use and must be made again ({why}): '
                     'run tests/openstack/down first')
        there = list(a.state.iterdir()) if a.state.exists() else []
        if there and not mark.exists():
            sys.exit(f'{a.state} is not a state that tests/openstack/up has '
                     'made: name an empty folder')
        for path in there:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    for name in FOLDERS:
        (a.state / name).mkdir(parents=True, exist_ok=True)
    mark.write_text(wanted)


def check_ports(a):
    """Checks that no other process listens on a port of a service."""
    for name, port in PORTS.items():
        if procs.alive(name):
            continue
        with socket.socket() as s:
            if s.connect_ex((IP, port)) == 0:
                sys.exit(f'{IP}:{port} is taken by another process, and {name} '
                         'needs it (the other flavour? run '
                         'tests/openstack/down --flavour for it)')


def seed(a, what):
    run(a.python, a.state / 'helpers' / 'seed.py', what, '--ip', IP,
        '--region', REGION, '--password', PASSWORD, '--hosts', ','.join(HOSTS),
        '--zones', ','.join(ZONES), '--out',
        a.state / 'conf' / 'amphorae.json',
        log=a.state / 'log' / 'seed.log', env=environment(a))


def start_services(a):
    api(a, 'placement', 8778, 1, 4)
    api(a, 'glance', 9292, 1, 4)
    api(a, 'octavia', 9876, 1, 4)
    daemon(a, 'nova-conductor', 'nova.cmd.conductor', 'nova', 'nova-db')
    daemon(a, 'nova-scheduler', 'nova.cmd.scheduler', 'nova', 'nova-db')
    api(a, 'nova', 8774, options.WORKERS, 1)
    api(a, 'neutron', 9696, options.WORKERS, 1)
    for host in HOSTS:
        daemon(a, f'nova-compute-{host}', 'nova.cmd.compute', 'nova', host,
               QUARTET_PRELOAD='quartet_nova')
    for service in a.services:
        name = f'{service}-api'
        wait(service, answers(f'http://{IP}:{PORTS[name]}/'), 180, name)


def wait_for_hypervisors(a, first):
    ground.listening(a, **{'nova-conductor': 'conductor',
                           'nova-scheduler': 'scheduler'},
                     **{f'nova-compute-{h}': f'compute.{h}' for h in HOSTS})
    count = 'select count(*) from nova.compute_nodes where deleted=0'
    wait('nova-compute', lambda: int(ground.sql(a, count)) >= len(HOSTS), 120,
         f'nova-compute-{HOSTS[-1]}')
    if first:
        run(*main_of(a, 'nova.cmd.manage'), *config_files(a, 'nova', 'nova-db'),
            'cell_v2', 'discover_hosts', log=a.state / 'log' / 'nova-db.log',
            env=environment(a))


def start(a):
    done = a.state / 'initialised'
    first = not done.exists()
    configuration.render(a)
    configuration.code(a)
    configuration.certificates(a)
    say('start MariaDB and RabbitMQ')
    ground.bus(a)
    ground.database(a)
    if first:
        say('create and migrate the databases')
        migrations.migrate(a)
    ground.bus_ready()
    say('start Keystone')
    api(a, 'keystone', 5000, 1, 8)
    wait('Keystone', answers(f'http://{IP}:5000/v3'), process='keystone-api')
    if first:
        say('seed the identities')
        seed(a, 'identity')
    say('start the services')
    start_services(a)
    say('wait for the hypervisors')
    wait_for_hypervisors(a, first)
    if first:
        say('seed networks, image, flavors, zones')
        seed(a, 'resources')
        configuration.render(a)
        done.touch()
    say('start the Octavia worker')
    daemon(a, 'octavia-worker', 'octavia.cmd.octavia_worker', 'octavia')
    ground.listening(a, **{'octavia-worker': 'octavia_provisioning_v2'})


def clouds_yaml(a):
    def cloud(name, user, project):
        return f'''  {name}:
    auth:
      auth_url: http://{IP}:5000/v3
      username: {user}
      password: {PASSWORD}
      project_name: {project}
      user_domain_name: Default
      project_domain_name: Default
    region_name: {REGION}
    identity_api_version: 3
'''
    path = a.state / 'clouds.yaml'
    path.write_text('clouds:\n' + cloud('k8s', 'k8s', 'k8s') +
                    cloud('admin', 'admin', 'admin'))
    return path


def main():
    a = options.for_up()
    procs.use(a.state)
    prepare(a)
    ran = bool(procs.running())
    check_ports(a)
    packages.install(a)
    if a.install_only:
        return
    start(a)
    path = clouds_yaml(a)
    say(f'up: OS_CLIENT_CONFIG_FILE={path} OS_CLOUD=k8s (or admin)')
    # For programs: the folder of the state, and whether something has to be stopped.
    print(a.state)
    print('running' if ran else 'started')


if __name__ == '__main__':
    main()
