"""Starts OpenStack's programs: the APIs in uWSGI, the daemons alone."""

import os

import procs
from options import IP


def environment(a, **more):
    conf = a.state / 'conf'
    env = dict(
        os.environ,
        PYTHONPATH=str(a.state / 'plugins'),
        PYTHONUNBUFFERED='1',
        PATH=(f'{a.venv}/bin:' if a.flavour == 'pypi' else '') +
        '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
        OS_KEYSTONE_CONFIG_DIR=str(conf),
        OS_KEYSTONE_CONFIG_FILES=str(conf / 'keystone.conf'),
        OS_PLACEMENT_CONFIG_DIR=str(conf),
        OS_NOVA_CONFIG_DIR=str(conf),
        OS_NOVA_CONFIG_FILES='nova-api-paste.ini;nova.conf;nova-db.conf',
        OS_NEUTRON_CONFIG_DIR=str(conf),
        OS_NEUTRON_CONFIG_FILES='neutron.conf',
        OS_GLANCE_CONFIG_DIR=str(conf),
        OS_OCTAVIA_CONFIG_DIR=str(conf))
    for name in list(env):
        if name.lower() in ('http_proxy', 'https_proxy', 'all_proxy') or \
                name.startswith('PYENV'):
            del env[name]
    env['no_proxy'] = '*'
    env.update(more)
    return env


def main_of(a, module):
    """The command that runs an entry point."""
    return [a.python, a.state / 'helpers' / 'run_main.py', module]


def config_files(a, *names):
    return [word for name in names
            for word in ('--config-file', str(a.state / 'conf' / f'{name}.conf'))]


def daemon(a, name, module, *configs, **env):
    procs.start(name, main_of(a, module) + config_files(a, *configs) +
                ['--log-file', a.state / 'log' / f'{name}.log'],
                env=environment(a, **env))


def api(a, service, port, processes, threads):
    command = [a.uwsgi]
    if a.flavour == 'debian':
        command += ['--plugin', 'python3']
    else:
        command += ['--virtualenv', str(a.venv)]
    command += [
        '--http-socket', f'{IP}:{port}',
        '--wsgi-file', str(a.state / 'helpers' / 'app.py'),
        '--master', '--lazy-apps', '--need-app', '--enable-threads',
        '--die-on-term', '--thunder-lock', '--buffer-size', '65535',
        '--listen', '100', '--disable-logging',
        # It closes each connection anyway, and this tells the client.
        '--add-header', 'Connection: close',
        '--hook-master-start', 'unix_signal:15 gracefully_kill_them_all',
        '--procname-prefix-spaced', service,
        '--processes', str(processes)]
    if threads > 1:
        command += ['--threads', str(threads)]
    if service in ('nova', 'neutron', 'octavia'):  # read their command line
        configs = ['nova', 'nova-db'] if service == 'nova' else [service]
        command += ['--pyargv', ' '.join(
            config_files(a, *configs) +
            ['--log-file', str(a.state / 'log' / f'{service}-api.log')])]
    procs.start(f'{service}-api', command,
                env=environment(a, QUARTET_SERVICE=service))
