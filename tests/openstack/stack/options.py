"""The options, and the folders."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
IP = '127.0.0.1'
PASSWORD = 'quartet'
REGION = 'RegionOne'
FLAVOURS = ['debian', 'pypi']
ZONES = ['zone-1', 'zone-2', 'zone-3']
HOSTS = ['hv-1', 'hv-2', 'hv-3']
# Two at once, so that a slow request does not hold up all others.
WORKERS = 2


def cache():
    home = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
    return pathlib.Path(home) / 'quartet'


def common(description):
    """The options of up and down."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument('--flavour', choices=FLAVOURS,
                   default=os.environ.get('FLAVOUR') or 'debian',
                   help="Debian 12's packages (an old cloud), or PyPI's in a "
                        'virtual environment (a current one) [%(default)s]')
    p.add_argument('--state', metavar='FOLDER',
                   help='where data, logs and pid files go '
                        '[~/.cache/quartet/openstack-FLAVOUR]')
    return p


def parse(parser):
    a = parser.parse_args()
    if a.flavour not in FLAVOURS:  # argparse trusts a default
        parser.error(f'FLAVOUR={a.flavour}: must be debian or pypi')
    a.state = pathlib.Path(a.state or cache() / f'openstack-{a.flavour}')
    a.state = a.state.resolve()
    return a


def for_up():
    p = common('Real OpenStack services on loopback.')
    p.add_argument('--fresh', action='store_true',
                   help='forget all data of an earlier run')
    p.add_argument('--install-only', action='store_true')
    a = parse(p)
    a.venv = cache() / 'openstack-pypi-venv'
    a.services = ['keystone', 'placement', 'glance', 'nova', 'neutron',
                  'octavia']
    a.databases = ['keystone', 'placement', 'glance', 'nova_api',
                   'nova_cell0', 'nova', 'neutron', 'octavia']
    if a.flavour == 'debian':
        a.python, a.uwsgi = '/usr/bin/python3', '/usr/bin/uwsgi-core'
    else:
        a.base_python = _base_python()
        a.python = str(a.venv / 'bin' / 'python')
        a.uwsgi = str(a.venv / 'bin' / 'uwsgi')
    return a


def _base_python():
    """A Python that can make the virtual environment."""
    test = 'import sys, ensurepip; assert sys.version_info >= (3, 11)'
    for name in ('python3', 'python3.13', 'python3.12', 'python3.11'):
        path = shutil.which(name)
        if path and not subprocess.run([path, '-c', test],
                                       stderr=subprocess.DEVNULL).returncode:
            return path
    sys.exit('--flavour pypi needs Python 3.11 or newer with ensurepip '
             '(on Debian 12: apt-get install python3-venv)')
