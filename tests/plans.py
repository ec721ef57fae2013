"""How the server carries out the very commands that the code under test sends.

A client that explains listens to itself: each command is explained, on another client, the moment before it is sent, so
that it meets the jobs as they are then, and no test can drift from the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

T = TypeVar("T")
EXPLAINED = ("find", "aggregate", "distinct", "findAndModify", "update", "delete")
LEFT_OUT = ("lsid", "txnNumber", "$db", "$clusterTime", "writeConcern", "readConcern", "ordered", "$readPreference")


@dataclass(frozen=True, slots=True)
class Plan:
    """What one command costs.

    Attributes:
        command: Its name.
        keys: How many index keys it examines.
        documents: How many documents it examines.
        stages: The stages of its plan with the names of their indexes, the outermost first.
        rejected: How many other plans the server tried.
    """

    command: str
    keys: int
    documents: int
    stages: tuple[str, ...]
    rejected: int

    @property
    def indexes(self) -> set[str]:
        """The names of the indexes it uses."""
        return {stage.partition(" ")[2] for stage in self.stages} - {""}


class Explainer(CommandListener):
    """Explains the commands on one collection while a decision runs, and counts them.

    Args:
        db: The database, on a client that does not explain.
    """

    def __init__(self, db: Database[dict[str, Any]]) -> None:
        self._db = db
        self._plans: list[Plan] | None = None
        self._errors: list[Exception] = []
        self.sent: list[str] = []

    def of(self, decide: Callable[[], T]) -> tuple[T, list[Plan]]:
        """Runs a decision, and gives its result and the plans of its commands, a plan for each update of a bulk."""
        self._plans, self._errors, self.sent = [], [], []
        try:
            result = decide()
            plans = self._plans
        finally:
            self._plans = None
        for error in self._errors:  # the driver prints what a listener raises, and goes on
            raise error
        return result, plans

    def started(self, event: CommandStartedEvent) -> None:
        command = event.command
        if self._plans is None or command.get(event.command_name) != "job":
            return
        self.sent.append(event.command_name)
        if event.command_name in EXPLAINED:
            try:
                self._plans += [explain(self._db, single) for single in _singles(command)]
            except Exception as error:
                self._errors.append(error)

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


def names(plans: Iterable[Plan]) -> list[str]:
    return [plan.command for plan in plans]


def keys(plans: Iterable[Plan]) -> list[int]:
    return [plan.keys for plan in plans]


def explain(db: Database[dict[str, Any]], command: Mapping[str, Any]) -> Plan:
    """Asks the server how it would carry out a command now."""
    answer: Any = db.command("explain", command, verbosity="executionStats")
    if "stages" in answer:  # an aggregation, of which only the first stage reads
        answer = answer["stages"][0]["$cursor"]
    planner, statistics = answer["queryPlanner"], answer["executionStats"]
    return Plan(
        next(iter(command)),
        statistics["totalKeysExamined"],
        statistics["totalDocsExamined"],
        tuple(_stages(planner["winningPlan"])),
        len(planner["rejectedPlans"]),
    )


def _singles(command: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The command as often as it has updates or deletes, with one of them each: more the server does not explain."""
    kept = {name: value for name, value in command.items() if name not in LEFT_OUT}
    for several in ("updates", "deletes"):
        if several in kept:
            yield from ({**kept, several: [one]} for one in kept[several])
            return
    yield kept


def _stages(plan: Mapping[str, Any]) -> Iterator[str]:
    if "queryPlan" in plan:
        plan = plan["queryPlan"]
    yield f"{plan['stage']} {plan['indexName']}" if "indexName" in plan else plan["stage"]
    for below in plan.get("inputStages", [plan["inputStage"]] if "inputStage" in plan else []):
        yield from _stages(below)
