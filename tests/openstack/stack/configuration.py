"""The services' configuration files, certificates and plug-ins."""

import json
import shutil

from options import HERE, HOSTS, IP, PASSWORD
from steps import run


def words(a):
    """The values that the templates in conf/ need."""
    ids = a.state / 'conf' / 'amphorae.json'
    ids = json.loads(ids.read_text()) if ids.exists() else {}
    return {
        'STATE': str(a.state),
        'DB': f'mysql+pymysql://quartet:{PASSWORD}@localhost',
        'BUS': f'rabbit://guest:guest@{IP}:5672/',
        # The second one has a node identity that survives a restart. The newer
        # Nova demands one.
        'FAKE_DRIVER': 'FakeDriver' if a.flavour == 'debian'
                       else 'FakeDriverWithoutFakeNodes',
        'AMP_IDS': '\n'.join(f'{k} = {v}' for k, v in ids.items()),
        'AUTHTOKEN': '\n'.join([
            f'auth_url = http://{IP}:5000/v3',
            f'www_authenticate_uri = http://{IP}:5000/v3',
            'auth_type = password', 'project_domain_name = Default',
            'user_domain_name = Default', 'project_name = service',
            f'password = {PASSWORD}',
            # A revoked token is refused within a second, not five minutes.
            'token_cache_time = 1']),
    }


def render(a):
    known = words(a)

    def fill(source, target, **more):
        text = (HERE / 'conf' / source).read_text()
        for name, value in {**known, **more}.items():
            text = text.replace(f'@{name}@', value)
        (a.state / 'conf' / target).write_text(text)

    for path in (HERE / 'conf').iterdir():
        if path.name != 'nova-compute.conf':
            fill(path.name, path.name)
    for host in HOSTS:
        fill('nova-compute.conf', f'{host}.conf', HOST=host)


def code(a):
    """Puts plug-ins and helpers beside the data, so that the checkout stays clean."""
    for name in ('plugins', 'helpers'):
        shutil.copytree(HERE / name, a.state / name, dirs_exist_ok=True)


def certificates(a):
    """Creates files that Octavia needs although amphorae never ask for them."""
    folder = a.state / 'octavia' / 'certs'
    if (folder / 'client.pem').exists():
        return

    def ssl(*command):
        run('openssl', *command, log=a.state / 'log' / 'certs.log', cwd=folder)

    ssl('req', '-x509', '-newkey', 'rsa:2048', '-sha256', '-days', '3650',
        '-subj', '/CN=quartet-ca', '-passout', 'pass:quartet', '-keyout',
        'ca.key', '-out', 'ca.pem')
    ssl('req', '-newkey', 'rsa:2048', '-sha256', '-nodes', '-subj',
        '/CN=quartet-client', '-keyout', 'client.key', '-out', 'client.csr')
    ssl('x509', '-req', '-in', 'client.csr', '-CA', 'ca.pem', '-CAkey',
        'ca.key', '-passin', 'pass:quartet', '-CAcreateserial', '-days',
        '3650', '-sha256', '-out', 'client.crt')
    (folder / 'client.pem').write_text((folder / 'client.crt').read_text() +
                                       (folder / 'client.key').read_text())
