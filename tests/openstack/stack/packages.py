"""Installs what is missing.

No daemon packages: Debian's python3-* hold all the code, without debconf, users
and init scripts.
"""

import os
import pathlib
import shutil
import subprocess

from options import HERE
from steps import run, say

BASE = ['mariadb-server', 'mariadb-client', 'rabbitmq-server', 'openssl']
DEBIAN = ['python3-keystone', 'python3-placement', 'python3-glance',
          'python3-nova', 'python3-neutron', 'python3-octavia',
          'python3-pymysql', 'python3-openstacksdk', 'uwsgi-core',
          'uwsgi-plugin-python3']


def install(a):
    want = list(BASE)
    if a.flavour == 'debian':
        want += DEBIAN
    missing = sorted(set(want) - _installed(want))
    if missing:
        _apt(missing, a.state / 'log' / 'apt.log')
    if a.flavour == 'pypi':
        _venv(a)


def _installed(packages):
    out = subprocess.run(
        ['dpkg-query', '-W', '-f', '${db:Status-Abbrev}${Package}\n',
         *packages], capture_output=True, text=True).stdout
    return {line[3:].strip() for line in out.splitlines()
            if line.startswith('ii')}


def _apt(missing, log):
    env = dict(os.environ, DEBIAN_FRONTEND='noninteractive')
    # Keeps the packages' own MariaDB and RabbitMQ from starting. An existing
    # one is not changed.
    policy = pathlib.Path('/usr/sbin/policy-rc.d')
    ours = not policy.exists()
    if ours:
        policy.write_text('#!/bin/sh\nexit 101\n')
        policy.chmod(0o755)
    try:
        apt = ['apt-get', '-o', 'DPkg::Lock::Timeout=300', '-y', '-q',
               '--no-install-recommends', 'install', *missing]
        say('download Debian packages')
        run('apt-get', '-q', 'update', log=log, env=env)
        run(*apt, '--download-only', log=log, env=env)
        say('unpack Debian packages')
        run(*apt, '-o', 'Dpkg::Options::=--force-unsafe-io', log=log, env=env)
    finally:
        if ours:
            policy.unlink()


def _venv(a):
    wanted = (HERE / 'requirements.txt').read_text()
    ready = a.venv / 'requirements.txt'  # written last
    if ready.exists() and ready.read_text() == wanted:
        return
    say('install PyPI packages')
    log = a.state / 'log' / 'pip.log'
    if a.venv.exists():
        shutil.rmtree(a.venv)
    a.venv.parent.mkdir(parents=True, exist_ok=True)
    run(a.base_python, '-m', 'venv', a.venv, log=log)
    run(a.venv / 'bin' / 'pip', 'install', '-q', 'uv', log=log)
    run(a.venv / 'bin' / 'uv', 'pip', 'install', '--python', a.python, '-r',
        HERE / 'requirements.txt', log=log)
    ready.write_text(wanted)
