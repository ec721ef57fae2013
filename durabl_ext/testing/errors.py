"""What a test is told: all are ``AssertionError``, so that a test runner shows them as failures."""

from __future__ import annotations


class CrashNotReached(AssertionError):  # noqa: N818  # a state, as StepFailed is
    """Says that a run ended before the write at which something was to happen to it.

    Attributes:
        planned: At which write.
        ended: How the run ended instead.
        journal: The steps that are in the journal, ``"seq name"``.
    """

    def __init__(self, planned: str, ended: str, journal: tuple[str, ...]) -> None:
        super().__init__(planned, ended, journal)
        self.planned, self.ended, self.journal = planned, ended, journal

    def __str__(self) -> str:
        kept = ", ".join(self.journal) or "nothing"
        return (
            f"nothing was interrupted: the run {self.ended} and did not write {self.planned}. The journal has {kept}; "
            "a step that is in it is not written again"
        )


class CrashUnsafe(AssertionError):  # noqa: N818  # a state, as StepFailed is
    """Says that a body does not do the same when it is interrupted and resumed.

    Attributes:
        case: What was done to it.
        step: The name of the step at whose write that was; None where it was at none.
        seq: That step's place in the journal, or None.
        expected: The effects of a run that nothing interrupts; None where they were not compared.
        found: Those of this one.
        problem: What is wrong.
        repeat: The lines of a program that does just this.
        remedy: What to do.
    """

    def __init__(
        self,
        case: str,
        step: str | None,
        seq: str | None,
        expected: object,
        found: object,
        problem: str,
        repeat: str,
        remedy: str,
    ) -> None:
        super().__init__(case, step, seq, expected, found, problem, repeat, remedy)
        self.case, self.step, self.seq = case, step, seq
        self.expected, self.found = expected, found
        self.problem, self.repeat, self.remedy = problem, repeat, remedy

    def __str__(self) -> str:
        return f"{self.case}: {self.problem}\n\nTo repeat this case:\n{self.repeat}\n\nWhat to do: {self.remedy}"
