"""Creates the databases' tables, with each service's own tool, two at once."""

import concurrent.futures
import os

from ground import sql
from options import IP, PASSWORD, REGION
from programs import config_files, environment, main_of
from steps import run


def migrate(a):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        jobs = [pool.submit(_manage, a, *job) for job in _jobs(a)
                if job[0] in a.services]
        for job in jobs:
            job.result()


def _manage(a, service, module, *steps):
    configs = ['nova', 'nova-db'] if service == 'nova' else [
        'glance-api' if service == 'glance' else service]
    for step in steps:
        if 'create_cell' in step and 'cell1' in sql(
                a, 'select name from nova_api.cell_mappings'):
            continue  # an earlier run came this far
        run(*main_of(a, module), *config_files(a, *configs), *step,
            log=a.state / 'log' / f'{service}-db.log', env=environment(a))


def _jobs(a):
    database = f'mysql+pymysql://quartet:{PASSWORD}@localhost'
    query = f'?unix_socket={a.state}/run/mysql.sock&charset=utf8'
    owner = ['--keystone-user', 'root', '--keystone-group', 'root']
    url = f'http://{IP}:5000/v3'
    # The longest first.
    return [
        ('neutron', 'neutron.db.migration.cli', ['upgrade', 'heads']),
        ('nova', 'nova.cmd.manage',
         ['api_db', 'sync'],
         ['cell_v2', 'map_cell0', '--database_connection',
          f'{database}/nova_cell0{query}'],
         ['db', 'sync'],
         ['cell_v2', 'create_cell', '--name', 'cell1']),
        ('octavia', 'octavia.db.migration.cli', ['upgrade', 'head']),
        ('keystone', 'keystone.cmd.manage',
         ['db_sync'], ['fernet_setup', *owner], ['credential_setup', *owner],
         ['bootstrap', '--bootstrap-password', PASSWORD,
          '--bootstrap-public-url', url, '--bootstrap-internal-url', url,
          '--bootstrap-admin-url', url, '--bootstrap-region-id', REGION]),
        ('glance', 'glance.cmd.manage', ['db', 'sync']),
        ('placement', 'placement.cmd.manage', ['db', 'sync']),
    ]
