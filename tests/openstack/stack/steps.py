"""Prints the steps, runs commands, waits for services."""

import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

import procs

_began = time.monotonic()


def say(text):
    print(f'[{time.monotonic() - _began:6.1f}s] {text}', file=sys.stderr,
          flush=True)


def run(*command, log, **more):
    """Runs a command that must succeed. Its output goes to a log."""
    with open(log, 'ab') as f:
        if not subprocess.run([str(c) for c in command], stdout=f, stderr=f,
                              **more).returncode:
            return
    tail = pathlib.Path(log).read_text(errors='replace')[-3000:]
    sys.exit(f'failed: {" ".join(map(str, command))}\n{tail}\n(log: {log})')


def wait(what, probe, seconds=90, process=None):
    """Waits until the probe is true. Ends at once when the process does."""
    end = time.monotonic() + seconds
    while True:
        seen = 'no'
        try:
            if probe():
                return
        except Exception as e:  # any failure means not yet
            seen = e
        if process and not procs.alive(process):
            sys.exit(f'{process} ended: see {procs.log_of(process)}')
        if time.monotonic() > end:
            sys.exit(f'{what} did not come up in {seconds} s ({seen})')
        time.sleep(0.2)


def answers(url):
    """A probe: true if an HTTP server answers there at all."""
    def probe():
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status < 500
        except urllib.error.HTTPError as e:
            return e.code < 500
    return probe
