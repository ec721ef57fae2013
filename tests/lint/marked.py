"""Files for the lint whose lines say what is to be found in them: ``await client.get()  # DUR001``."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from durabl_ext.lint import Finding, check

HEAD = """\
import asyncio
from durabl_ext import Orchestrator
orch = Orchestrator(queue)
"""


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes files, each with a package around it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def expected(folder: Path) -> list[str]:
    """The findings that the files' own comments ask for."""
    return sorted(
        f"{path.relative_to(folder)}:{place}: {code}"
        for path in folder.rglob("*.py")
        for place, line in enumerate(path.read_text().splitlines(), 1)
        for code in re.findall(r"# (DUR\d+(?: DUR\d+)*)$", line)
        for code in code.split()
    )


def found(folder: Path) -> list[str]:
    """The findings that there are, as the comments would ask for them."""
    report = check([folder])
    assert report.unreadable == []
    return sorted(f"{finding.path.relative_to(folder)}:{finding.line}: {finding.code}" for finding in report.findings)


def findings(folder: Path, text: str) -> list[Finding]:
    """What is found in one file, which begins with an orchestrator named ``orch``."""
    write(folder, {"flow.py": HEAD + textwrap.dedent(text)})
    report = check([folder / "flow.py"])
    assert report.unreadable == []
    return report.findings


def in_body(lines: str, kind: str = "async def") -> str:
    """An orchestration of these lines."""
    inside = textwrap.indent(textwrap.dedent(lines).strip(), "    ")
    return f'{kind} body(job, octx):\n{inside}\n\norch.define("act", body)\n'
