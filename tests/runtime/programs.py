"""Workers as processes of their own, which a test starts, kills and starts again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PROLOGUE = """
import os, sys, threading, time
from pymongo import MongoClient
from durabl_ext import JobQueue

uri, name = sys.argv[1:]
"""


@contextmanager
def program(text: str, url: str, name: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a program after the prologue, which has the server's address and the database's name."""
    command = [sys.executable, "-c", PROLOGUE + text, url, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """Waits for the next line that a program prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
