"""Processes by pid file: a pid counts only together with its start time."""

import os
import pathlib
import signal
import subprocess
import sys
import time

_dir = pathlib.Path()


def use(directory):
    global _dir
    _dir = pathlib.Path(directory)


def log_of(name):
    return _dir / 'log' / f'{name}.out'


def _started(pid):
    """When the process began, or None if there is none (or a zombie)."""
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return None
    fields = stat.rsplit(')', 1)[1].split()
    return None if fields[0] == 'Z' else fields[19]


def _read(path):
    try:
        pid, started = path.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if _started(pid) == started else None


def alive(name):
    return _read(_dir / 'run' / f'{name}.pid')


def names():
    files = sorted((_dir / 'run').glob('*.pid'),
                   key=lambda p: p.stat().st_mtime)
    return [p.stem for p in files]


def running():
    return [n for n in names() if alive(n)]


def start(name, command, env=None):
    if alive(name):
        return
    with open(log_of(name), 'ab') as log:
        child = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, env=env, cwd=_dir, start_new_session=True)
    (_dir / 'run' / f'{name}.pid').write_text(
        f'{child.pid} {_started(child.pid)}\n')


def _children(pid):
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            fields = path.read_text().rsplit(')', 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def tree(pid):
    """The process and its children, with start times."""
    found = [(pid, _started(pid))]
    for child in _children(pid):
        found += tree(child)
    return found


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _left(trees, patience):
    """The processes that have not ended after this number of seconds."""
    end = time.monotonic() + patience
    while trees and time.monotonic() < end:
        trees = [(p, s) for p, s in trees if s and _started(p) == s]
        time.sleep(0.1)
    return trees


def stop(some, patience=20):
    """Sends TERM to these and their children, then KILL to the rest."""
    trees = []
    for name in some:
        pid = alive(name)
        if pid:
            below = tree(pid)
            trees += below
            _signal(pid, signal.SIGTERM)
            for p, _ in below:  # one held with SIGSTOP would not end
                _signal(p, signal.SIGCONT)
    trees = _left(trees, patience)
    for pid, _ in trees:
        print(f'{pid} did not end on TERM: KILL', file=sys.stderr)
        _signal(pid, signal.SIGKILL)
    _left(trees, patience)  # until then they hold their ports
    for name in some:
        (_dir / 'run' / f'{name}.pid').unlink(missing_ok=True)
