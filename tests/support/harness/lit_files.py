"""Runs the RUN lines of a lit file in this process, and lists faults of the file itself.

`lit` itself stays the authority; in one process the files take a fraction of the time. A RUN
line is a pipe of collopt, collrun, collir, scripts of papers, filecheck and `not`.
"""

import io
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from support.harness.commands import Tool, tool_of

_DIRECTIVE = re.compile(
    r"^\s*// ?(?P<prefix>[A-Z][A-Z0-9-]*?)"
    r"(?P<kind>-NEXT|-SAME|-NOT|-DAG|-LABEL|-EMPTY|-COUNT-\d+)?(?:\{LITERAL\})?:(?P<pattern>.*)$"
)
_ANNOTATION = re.compile(r"// expected-(error|note|remark|warning)")
_SENTENCE = re.compile(r"^\s*// .*[.:]$")


class RunError(Exception):
    """A RUN line that failed."""


def _filecheck(arguments: Sequence[str]) -> int:
    from filecheck.main import main

    return int(main(["filecheck", *arguments]) or 0)


def _tool_of(words: Sequence[str]) -> tuple[Tool, Sequence[str]]:
    """Return the tool of a stage, and its arguments.

    Raises:
        RunError: it is none that runs in this process.
    """
    if words[0] == "filecheck":
        return _filecheck, words[1:]
    if (tool := tool_of(words)) is None:
        raise RunError(f"{words[0]} is no tool that tests run")
    return tool


def run_lines(text: str) -> list[str]:
    """Return the commands of a file, each with its continuation lines."""
    commands: list[str] = []
    for line in text.splitlines():
        comment, mark, command = line.partition("// RUN:")
        if not mark or comment.strip():
            continue
        if commands and commands[-1].endswith("\\"):
            commands[-1] = commands[-1].removesuffix("\\") + command.strip()
        else:
            commands.append(command.strip())
    return commands


def run_piped(command: str, path: Path) -> str:
    """Return the output of a pipe of our tools, each of which reads the previous output.

    Raises:
        RunError: a tool fails that should not fail, or does not fail that should.
    """
    text = ""
    for stage in command.split(" | "):
        words = [
            word.replace("%s", str(path)).replace("%S", str(path.parent))
            for word in shlex.split(stage)
        ]
        merge = "2>&1" in words
        words = [word for word in words if word != "2>&1"]
        expect_failure = words[0] == "not"
        tool, arguments = _tool_of(words[1:] if expect_failure else words)
        out, err = io.StringIO(), io.StringIO()
        old, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        try:
            with redirect_stdout(out), redirect_stderr(out if merge else err):
                status = tool(arguments)
        except SystemExit as stop:  # argparse, and filecheck
            status = int(stop.code or 0)
        finally:
            sys.stdin = old
        if (status != 0) != expect_failure:
            raise RunError(f"{stage}\nexited with {status}\n{err.getvalue()}{out.getvalue()}")
        text = out.getvalue()
    return text


def faults(text: str) -> Iterator[str]:
    """Yield the faults by which a file tests less than it seems to, or is hard to read."""
    commands = run_lines(text)
    if not commands:
        yield "no RUN line: nothing is tested"
    checked = {prefix for command in commands for prefix in _prefixes(command)}
    used = set[str]()
    for number, line in enumerate(text.splitlines(), 1):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            if re.match(r"\s*// ?[A-Z-]*CHECK", line):
                yield f"line {number}: not a directive of FileCheck (a colon is missing?)"
            continue
        prefix = directive["prefix"]
        if prefix in ("RUN", "REQUIRES"):
            continue
        if re.search("COM|RUN", prefix):
            yield f"line {number}: filecheck takes {prefix} for a comment, as COM or RUN is in it"
        used.add(prefix)
        if prefix not in checked:
            yield f"line {number}: no RUN line checks {prefix}: (misspelt?)"
        if re.search(r"%\d", re.sub(r"\[\[.*?\]\]", "", directive["pattern"])):
            yield f"line {number}: capture the value, as in [[X:%\\d+]]: its number may change"
    for prefix in sorted(checked - used):
        yield f"{prefix} is given to filecheck, and no line has it"
    if "--split-input-file" not in text and "// -----" in text:
        yield "the file has several chunks, and no RUN line splits it"
    for index, chunk in enumerate(text.split("// -----")):
        prose = (
            line
            for line in chunk.splitlines()
            if _SENTENCE.match(line) and not _DIRECTIVE.match(line) and not _ANNOTATION.search(line)
        )
        if not any(prose):
            yield f"chunk {index}: no sentence says what the case is"


def _prefixes(command: str) -> list[str]:
    """Return the prefixes that the filechecks of a RUN line look for."""
    prefixes: list[str] = []
    for stage in command.split(" | "):
        words = shlex.split(stage.removeprefix("not "))
        if words[0] != "filecheck":
            continue
        options = re.findall(r"--check-prefix(?:es)?[= ](\S+)", stage)
        prefixes += [prefix for option in options for prefix in option.split(",")] or ["CHECK"]
    return prefixes
