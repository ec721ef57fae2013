"""What a job's journal says its body did, and whether the body does the same again. No I/O.

A step's place is its number in the order of the calls, "0", "1", …; within the second branch of a group at "3" it is
"3.1.0". A body is followed by its calls alone: the first that is not what the journal has there ends the run before
anything of it happens, and what ends a run sticks, so that a body which catches everything starts no other step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from durabl_ext.errors import NondeterminismError
from simplequeue.job import Document

START = "start"
"""The place of what ``now`` and ``uuid`` go by."""

BESIDE = "beside"
"""In a record: the places of branches that ran when the step was called. Without it all before had ended."""

ROLL_BACK = (
    "Nothing of this step was done. Put back the body the journal was written by, or one that only differs after its "
    "last step, and resume the job"
)


class History:
    """The journal of one job, as its body goes along it.

    Args:
        job_id: The job.
        records: The journal.

    Attributes:
        broken: What ended the run; it is raised again wherever the body goes on.
    """

    def __init__(self, job_id: str, records: Iterable[Mapping[str, Any]]) -> None:
        self.job_id = job_id
        self.broken: BaseException | None = None
        self._records = {str(record["seq"]): dict(record) for record in records}
        self._reached: set[str] = set()
        self._groups = {seq[:at] for seq in self._records for at, sign in enumerate(seq) if sign == "."}
        self._reached_before: dict[str, int] = {}  # by prefix, the last call that was made once all before had ended
        for seq, record in self._records.items():
            if seq != START and not record.get(BESIDE):
                self._note_reached(seq)

    @property
    def start(self) -> Document | None:
        """What ``now`` and ``uuid`` go by, once it is there."""
        return self._records.get(START)

    def check(self) -> None:
        """Raises what ended the run, if something did."""
        if self.broken is not None:
            raise self.broken

    def fail(self, error: BaseException) -> NoReturn:
        """Ends the run; what ended it first stays what did."""
        self.note(error)
        raise self.broken or error

    def note(self, error: BaseException) -> None:
        """Takes note of what ends the run, unless something has before."""
        if self.broken is None:
            self.broken = error

    def refuse(self, seq: str, recorded: str | None, called: str, remedy: str = ROLL_BACK) -> NoReturn:
        """Ends the run since the body does not do what it did, or what can be repeated."""
        self.fail(NondeterminismError(self.job_id, seq, recorded, called, remedy))

    def step(self, seq: str, name: str) -> Document | None:
        """What the journal has of a step the body calls, None when it is to be run.

        Raises:
            NondeterminismError: It has something else there.
        """
        if seq in self._groups:
            first = self._named(self._below(f"{seq}.")[0])
            self.refuse(seq, f"branches, with step {first}", f"calls step {name!r}")
        record = self._records.get(seq)
        if record is not None and record.get("name") != name:
            self.refuse(seq, f"step {record.get('name')!r}", f"calls step {name!r}")
        self._reached.add(seq)
        return record

    def group(self, seq: str, branches: int) -> None:
        """Takes note of a group of branches the body calls.

        Raises:
            NondeterminismError: The journal has a step there, or of more branches.
        """
        if seq in self._records:
            self.refuse(seq, f"step {self._named(seq)}", f"calls {branches} branches")
        for recorded in self._below(f"{seq}."):
            if int(recorded.removeprefix(f"{seq}.").split(".")[0]) >= branches:
                self.refuse(recorded, f"step {self._named(recorded)}", f"calls {branches} branches")

    def has_branches(self, seq: str) -> bool:
        """Whether the journal has steps of branches there."""
        return seq in self._groups

    def has_ended(self, seq: str) -> bool:
        """Whether the journal says that the branches there had ended: it has something that was called after that."""
        prefix, number = _parted(seq)
        return self._reached_before.get(prefix, 0) > number

    def add(self, record: Mapping[str, Any]) -> None:
        """Takes note of what has been added to the journal."""
        self._records[str(record["seq"])] = dict(record)
        self._reached.add(str(record["seq"]))

    def end(self, prefix: str) -> None:
        """Takes note that the body, or a branch, has ended well.

        Raises:
            NondeterminismError: The journal has steps that it has not called.
        """
        left = [seq for seq in self._below(prefix) if seq not in self._reached and seq != START]
        if left:
            what = "the branch" if prefix else "it"
            self.refuse(left[0], f"step {self._named(left[0])}", f"returns before {what} has called that")

    def _note_reached(self, seq: str) -> None:
        numbers = seq.split(".")
        for length in range(1, len(numbers) + 1, 2):
            prefix, number = _parted(".".join(numbers[:length]))
            self._reached_before[prefix] = max(number, self._reached_before.get(prefix, 0))

    def _below(self, prefix: str) -> list[str]:
        # Of a copy: branches in other threads add to it.
        return [seq for seq in tuple(self._records) if seq.startswith(prefix)]

    def _named(self, seq: str) -> str:
        return repr(self._records[seq].get("name"))


class Scope:
    """Numbers the steps of a body, or of one branch.

    Args:
        prefix: What their places begin with.
        owner: The task or thread that alone may call them.
        group: What the branch belongs to; None for the body.
        around: The places of branches that run beside that group.

    Attributes:
        failed: Steps that failed since the last one was started here.
        running: What has been called and not ended: places and names.
        groups: The places of the branches among that.
    """

    def __init__(self, prefix: str, owner: object, group: Group | None = None, around: Iterable[str] = ()) -> None:
        self.prefix = prefix
        self.owner = owner
        self.group = group
        self.failed: list[Failed] = []
        self.running: dict[Any, tuple[str, str]] = {}
        self.groups: set[str] = set()
        self._around = frozenset(around)
        self._next = 0

    @property
    def beside(self) -> tuple[str, ...]:
        """The places of branches that run now, the own ones apart."""
        return tuple(sorted(self._around | self.groups))

    def branches(self, seq: str, count: int, has_ended: bool) -> tuple[Group, list[Scope]]:
        """A group of branches at a place, and a scope for each."""
        group = Group(self.group, has_ended)
        around = self.beside
        self.groups.add(seq)
        return group, [Scope(f"{seq}.{n}.", None, group, around) for n in range(count)]

    def take(self) -> str:
        """The next place."""
        seq = f"{self.prefix}{self._next}"
        self._next += 1
        return seq

    def failures(self) -> list[Failed]:
        """The failures after which the body has gone on, taken out."""
        failed, self.failed = self.failed, []
        return failed


@dataclass(frozen=True, slots=True)
class Failed:
    """A step that has failed, and what its function raised."""

    seq: str
    name: str
    error: Exception
    beside: tuple[str, ...]


class Group:
    """Branches that run at once.

    A group that had ended in an earlier run may hold nothing new, since the body has gone on: where a branch had
    failed, what the others had not started by then must not be done after all, least of all behind its undoing.

    Args:
        around: The group that the branch which calls these belongs to.
        has_ended: Whether it has, in an earlier run.

    Attributes:
        missed: The first step, or group, that is called and was not done then: its place and what it is.
    """

    def __init__(self, around: Group | None, has_ended: bool) -> None:
        self.has_ended: bool = has_ended or (around is not None and around.has_ended)
        self.missed: tuple[str, str] | None = None
        self._around = around
        self._failed = False

    @property
    def stopped(self) -> bool:
        """Whether a branch has failed here or around, so that the others start no other step."""
        return self._failed or (self._around is not None and self._around.stopped)

    def stop(self) -> None:
        """Takes note that a branch has failed."""
        self._failed = True

    def check(self, seq: str, called: str) -> None:
        """Ends a branch that calls what was not done before, where nothing is to be started any more."""
        if self.has_ended and self.missed is None:
            self.missed = seq, called
        if self.has_ended or self.stopped:
            raise BranchStopped

    def unexplained(self) -> tuple[str, str] | None:
        """What was called and not done then, though no branch has failed; a group around that had ended takes it on."""
        if self._around is None or not self._around.has_ended:
            return self.missed
        self._around.missed = self._around.missed or self.missed
        return None


class BranchStopped(BaseException):
    """Ends a branch since another one has failed."""


def _parted(seq: str) -> tuple[str, int]:
    """The prefix and the number of a place."""
    prefix, _, number = seq.rpartition(".")
    return f"{prefix}." if prefix else "", int(number)
