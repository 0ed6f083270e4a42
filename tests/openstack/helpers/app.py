"""The WSGI application of the service that $QUARTET_SERVICE names.

Newer releases have a module of one fixed shape for it; older ones each their
own function.
"""

import importlib
import os

OLDER = {
    'keystone': 'keystone.server.wsgi:initialize_public_application',
    'placement': 'placement.wsgi:init_application',
    'glance': 'glance.common.wsgi_app:init_app',
    'nova': 'nova.api.openstack.compute.wsgi:init_application',
    'neutron': 'neutron.cmd.eventlet.server:main_api_eventlet',
    'octavia': 'octavia.api.app:setup_app',
}

service = os.environ['QUARTET_SERVICE']
newer = 'nova.wsgi.osapi_compute' if service == 'nova' else f'{service}.wsgi.api'
try:
    application = importlib.import_module(newer).application
except ImportError:
    module, _, function = OLDER[service].partition(':')
    application = getattr(importlib.import_module(module), function)()
