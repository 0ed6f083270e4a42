"""run_main.py MODULE [ARG...]: the main function of an OpenStack program.

Debian has the daemons' scripts in other packages than their code; this stands
in for them, and for the virtual environment's own ones.
"""

import importlib
import os
import sys

module = sys.argv[1]
sys.argv = [module.rsplit('.', 1)[-1]] + sys.argv[2:]
main = importlib.import_module(module).main
if os.environ.get('QUARTET_PRELOAD'):
    importlib.import_module(os.environ['QUARTET_PRELOAD'])
sys.exit(main())
