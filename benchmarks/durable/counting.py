"""Counts the writes that a client sends, one by one, however many go in a command."""

from __future__ import annotations

from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

WRITES = {"update": "updates", "insert": "documents", "delete": "deletes"}


class Writes(CommandListener):
    """Listens to a client. Its counts only grow.

    Attributes:
        commands: Commands that write.
        writes: The writes in them, of which a command may have many.
    """

    def __init__(self) -> None:
        self.commands = 0
        self.writes = 0

    def started(self, event: CommandStartedEvent) -> None:
        """Takes note of a command."""
        if event.command_name in WRITES:
            self.commands += 1
            self.writes += len(event.command[WRITES[event.command_name]])
        elif event.command_name == "findAndModify":
            self.commands += 1
            self.writes += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing more to note."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Nothing more to note."""
