"""A mongod that is no replica set, for what has to work without change streams."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simplequeue.embedded.binary import find_mongod

GUARD = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
sys.stdin.read()  # ends when the test process does, however it ends
child.kill()
child.wait()
"""


@contextmanager
def standalone() -> Iterator[str]:
    """Runs a standalone server and gives its URI; it ends with the block, and with the test process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [str(find_mongod()), "--dbpath", folder, "--port", str(port), "--bind_ip", "127.0.0.1"]
        command += ["--nounixsocket", "--logpath", str(log), "--setParameter", "diagnosticDataCollectionEnabled=false"]
        guard = subprocess.Popen([sys.executable, "-c", GUARD, *command], stdin=subprocess.PIPE)
        try:
            yield f"mongodb://127.0.0.1:{port}/"
        finally:
            guard.communicate()
