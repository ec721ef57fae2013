"""Runs one mongod for one program and ends it when that program is gone, however it went.

`embedded` starts this file as a process of its own: a killed program ends nothing itself, and the kernel's "kill it
with its parent" follows the *thread* that started it, which may end long before its program. Here it is the only one.
So this file must import nothing of the package, and nothing outside the standard library.

Standard input: a line is a command to run, as a JSON list. An empty line, or the end of the input, means stop.
Standard output: a line is a JSON object.

    {"held": true}     the folder is locked, for this process and for what it runs
    {"busy": {"program": pid, "mongod": pid}}    others hold it; a pid may be missing
    {"started": pid}   the command runs
    {"ended": code}    it does not any more; negative: by that signal
    {"failed": text}   it cannot be run, or the folder cannot be held
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# How often a program is looked for whose end closes no pipe, since a child that it forked holds the other end too.
_LOOK = 0.5
# A mongod that does not end cleanly in this time is killed; its journal keeps what was acknowledged.
_END = 10.0
# A program that was killed leaves a mongod that is still ending. The next start waits for it, longer than _END.
_GRACE = 15.0

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def main(program: int, lock: Path, log: Path, temporary: Path | None) -> None:
    """Holds the folder of `lock` and runs in it what it is told to, until it is told to stop or `program` is gone.

    A folder given as `temporary` is made first and removed last.
    """
    orders = _Orders(program)
    if temporary is not None:
        temporary.mkdir(mode=0o700)
    try:
        held = _hold(lock, orders)
        if held is not None:
            _rotate(log)
            _report(held=True)
            _serve(orders, held, log, patience=_END if temporary is None else 0.0)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


class _Orders:
    """What the program says, and whether it is still there to say anything."""

    def __init__(self, program: int) -> None:
        self.program = program
        self.over = False
        self._text = b""
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken
        signal.signal(signal.SIGTERM, self._stop)
        # Ctrl-C and a closed terminal are the program's to answer; it needs its database while it shuts down.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # what the thread that started us had blocked

    def wait(self, timeout: float) -> list[str] | None:
        """Waits for an order, a signal or the end of the program; returns the command line to run, if there is one."""
        ready, _, _ = select.select([0, self._woken], [], [], timeout)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if 0 in ready:
            text = os.read(0, 65536)
            self._text += text
            self.over = self.over or not text
        self.over = self.over or os.getppid() != self.program
        line, newline, rest = self._text.partition(b"\n")
        if not newline:
            return None
        self._text = rest
        command: list[str] | None = json.loads(line) if line else None
        self.over = self.over or command is None
        return command

    def _stop(self, *_: object) -> None:
        self.over = True


def _hold(path: Path, orders: _Orders) -> int | None:
    # flock belongs to the open file, which mongod inherits: it is free once this process *and* mongod are gone.
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _GRACE
    while not orders.over:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(lock)
            if _running(holder.get("program")) or time.monotonic() > deadline:
                _report(busy=holder)
                return None
            orders.wait(0.05)
        else:
            _sign(lock, program=orders.program)
            return lock
    return None


def _sign(lock: int, **holder: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(holder).encode(), 0)


def _holder(lock: int) -> dict[str, int]:
    try:
        holder = json.loads(os.pread(lock, 4096, 0))
    except ValueError:  # its holder has not written it yet
        return {}
    return holder if isinstance(holder, dict) else {}


def _running(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return sys.platform != "linux"
    return stat.rpartition(")")[2].split()[0] != "Z"  # dead, and its parent has not asked yet


def _rotate(log: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        log.replace(log.with_name(log.name + ".1"))


def _serve(orders: _Orders, lock: int, log: Path, patience: float) -> None:
    mongod: subprocess.Popen[bytes] | None = None
    try:
        while not orders.over:
            command = orders.wait(_LOOK)
            if command is not None and (mongod := _start(command, lock, log)) is not None:
                _sign(lock, program=orders.program, mongod=mongod.pid)
                _report(started=mongod.pid)
            if mongod is not None and mongod.poll() is not None:
                _report(ended=mongod.returncode)
                mongod = None
    finally:
        if mongod is not None:
            _end(mongod, patience)


def _start(command: list[str], lock: int, log: Path) -> subprocess.Popen[bytes] | None:
    supervisor = os.getpid()

    def die_with_the_supervisor() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it died before it could be asked for
            os._exit(1)

    try:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[lock],
                preexec_fn=die_with_the_supervisor,  # noqa: PLW1509  # there are no other threads
            )
    except OSError as error:
        _report(failed=str(error))
        return None


def _end(mongod: subprocess.Popen[bytes], patience: float) -> None:
    if patience:
        mongod.send_signal(signal.SIGCONT)  # a frozen one hears nothing else
        mongod.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            mongod.wait(patience)
    mongod.kill()
    mongod.wait()


def _report(**report: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]) if sys.argv[4] else None)
    except OSError as error:
        _report(failed=str(error))
        sys.exit(1)
