"""The basis of the services: MariaDB on a Unix socket, RabbitMQ on loopback."""

import os
import shutil
import socket
import subprocess
import sys
import time

import procs
from options import IP, PASSWORD
from steps import run, wait


def sql(a, text):
    done = subprocess.run(
        ['mariadb', '--no-defaults', '-u', 'root', '-S',
         str(a.state / 'run' / 'mysql.sock'), '-N', '-e', text],
        capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def database(a):
    data = a.state / 'mysql'
    if not (data / 'mysql').exists():
        data.mkdir(exist_ok=True)
        run('mariadb-install-db', f'--defaults-file={a.state}/conf/mariadb.cnf',
            f'--datadir={data}', '--user=root', '--skip-test-db',
            '--auth-root-authentication-method=normal',
            log=a.state / 'log' / 'mariadb-install.log')
    procs.start('mariadb', ['mariadbd',
                            f'--defaults-file={a.state}/conf/mariadb.cnf'])
    wait('MariaDB', lambda: sql(a, 'select 1'), process='mariadb')
    lines = [f'create database if not exists {d} character set utf8'
             for d in a.databases]
    lines.append('create user if not exists quartet@localhost '
                 f"identified by '{PASSWORD}'")
    lines += [f'grant all on {d}.* to quartet@localhost' for d in a.databases]
    sql(a, ';'.join(lines))


def _listens(port):
    return lambda: socket.create_connection((IP, port)).close() or True


def bus(a):
    home = a.state / 'rabbit'
    env = dict(os.environ, HOME=str(home),
               RABBITMQ_CONF_ENV_FILE=str(a.state / 'conf/rabbitmq-env.conf'),
               RABBITMQ_ALLOW_INPUT='1')  # one process, not a shell around it
    cookie = home / '.erlang.cookie'
    if not cookie.exists():
        cookie.write_text('QUARTETOPENSTACK')
        cookie.chmod(0o400)
    (home / 'enabled_plugins').write_text('[].\n')
    if procs.alive('rabbitmq'):
        return
    if (home / 'mnesia').exists():  # nothing in it outlives the services
        shutil.rmtree(home / 'mnesia')
    procs.start('epmd', ['/usr/bin/python3', a.state / 'helpers' / 'epmd.py'])
    wait('epmd', _listens(4369), process='epmd')
    procs.start('rabbitmq', ['/usr/lib/rabbitmq/bin/rabbitmq-server',
                             '-noinput'], env=env)


def bus_ready():
    wait('RabbitMQ', _listens(5672), process='rabbitmq')


def listening(a, **queues):
    """Wait until each of these daemons consumes from its queue."""
    log = a.state / 'log' / 'listening.log'
    with open(log, 'wb') as f:
        probe = subprocess.Popen(
            [a.python, a.state / 'helpers' / 'listening.py',
             f'amqp://guest:guest@{IP}:5672//', '120', *queues.values()],
            stdout=f, stderr=f)
    while probe.poll() is None:
        for name in queues:
            if not procs.alive(name):
                probe.kill()
                probe.wait()
                sys.exit(f'{name} ended: see {procs.log_of(name)}')
        time.sleep(0.1)
    if probe.returncode:
        sys.exit(log.read_text())
