"""A program with an embedded MongoDB, for the tests to end in every way.

    python -m tests.embedded.program HOW [PATH]

It prints one line of JSON about its server. Then it waits to be killed, except where HOW says otherwise.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from simplequeue.embedded import Mongod, mongod

Client = MongoClient[dict[str, Any]]


def wait(server: Mongod, client: Client) -> None:
    """Does nothing more."""
    _tell(server, client)
    _wait()


def fork(server: Mongod, client: Client) -> None:
    """Has a child that holds what the program holds, and leaves the block before its parent does."""
    part(server, client)
    _wait()


def part(server: Mongod, client: Client) -> None:
    """Leaves the block itself as well, while the child lives on."""
    hear, say = os.pipe()
    child = os.fork()
    if not child:
        server.__exit__(None, None, None)
        os.write(say, b".")
        _wait()
    os.read(hear, 1)
    client.test.things.insert_one({})
    _tell(server, client, child=child)


def interrupt(server: Mongod, client: Client) -> None:
    """Uses its database once more when Ctrl-C ends it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins without it
    try:
        _tell(server, client)
        _wait()
    except KeyboardInterrupt:
        client.test.things.insert_one({})
        print(client.test.things.count_documents({}), flush=True)


def leave(server: Mongod, client: Client) -> None:
    """Comes to its end without leaving the block: an `os._exit`, or an object that nobody closed."""
    _tell(server, client)


def _tell(server: Mongod, client: Client, **more: Any) -> None:
    options = client.admin.command("getCmdLineOpts")["parsed"]
    folder = Path(options["storage"]["dbPath"]).parent
    print(json.dumps({"uri": server.uri, "mongod": server.pid, "folder": str(folder), **more}), flush=True)


def _wait() -> None:
    while True:
        signal.pause()


def main(how: str, path: str | None = None) -> None:
    server = mongod(path)
    if how == "thread":
        starter = threading.Thread(target=lambda: _tell(server, server.__enter__()))
        starter.start()
        starter.join()
        _wait()
    elif how == "leave":
        leave(server, server.__enter__())
    else:
        with server as client:
            {"wait": wait, "fork": fork, "part": part, "interrupt": interrupt}[how](server, client)


if __name__ == "__main__":
    main(*sys.argv[1:])
