"""down: stops what up has started, and only that.

Every process is known by its pid file and the start time written there, so a
pid that has since gone to another process is left alone. The data stay.
"""

import options
import procs

a = options.parse(options.common('Stops the OpenStack services.'))
procs.use(a.state)
names = procs.names()
under = [n for n in ('rabbitmq', 'epmd', 'mariadb') if n in names]
procs.stop([n for n in names if n not in under])
for name in under:
    procs.stop([name])
print('stopped: ' + (' '.join(names) or 'nothing was running'))
