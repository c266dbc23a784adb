"""Collects filecheck files as tests and runs their RUN lines in this process.

Plain `lit` stays the authority; in one process the same files take a fraction of the time. A RUN
line is a pipe of collopt, collrun, filecheck, `not` and cat.
"""

import io
import shlex
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from collir.tools import collopt, collrun

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/errors --update-golden` writes the .expect files anew: then read the diff."""
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files of tests/errors anew"
    )


class RunError(Exception):
    """A RUN line that failed."""


def _filecheck(arguments: list[str]) -> int:
    from filecheck.main import main

    try:
        return int(main(["filecheck", *arguments]) or 0)
    except SystemExit as stop:
        return int(stop.code or 0)


def _tool(name: str, arguments: list[str]) -> int:
    tools = {"collopt": collopt.main, "collrun": collrun.main, "filecheck": _filecheck}
    try:
        return tools[name](arguments)
    except SystemExit as stop:  # argparse
        return int(stop.code or 0)


def run_piped(command: str) -> str:
    """The output of a pipe of our tools, each fed the output of the one before."""
    text = ""
    for stage in command.split("|"):
        words = shlex.split(stage)
        merge = "2>&1" in words
        words = [word for word in words if word != "2>&1"]
        expect_failure = words[0] == "not"
        name, *arguments = words[1:] if expect_failure else words
        out, err = io.StringIO(), io.StringIO()
        stdin = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
        old, sys.stdin = sys.stdin, stdin
        try:
            with redirect_stdout(out), redirect_stderr(out if merge else err):
                status = _tool(name, arguments)
        finally:
            sys.stdin = old
        if (status != 0) != expect_failure:
            raise RunError(
                f"{stage.strip()}\nexited with {status}\n{err.getvalue()}{out.getvalue()}"
            )
        text = out.getvalue()
    return text


class FileCheckItem(pytest.Item):
    """One RUN line."""

    command: str = ""

    def runtest(self) -> None:
        run_piped(self.command)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        if isinstance(excinfo.value, RunError):
            return f"RUN: {excinfo.value}"
        return str(super().repr_failure(excinfo, style="short"))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class FileCheckFile(pytest.File):
    """A file with RUN lines in comments."""

    def collect(self) -> Iterable[FileCheckItem]:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        commands = [line.partition("RUN:")[2].strip() for line in lines if "// RUN:" in line]
        for index, command in enumerate(commands):
            text = command.replace("%s", str(self.path)).replace("%S", str(self.path.parent))
            item = FileCheckItem.from_parent(self, name=f"run{index}")  # pyright: ignore[reportUnknownMemberType]
            item.command = text
            yield item


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    """Files of tests/filecheck with RUN lines are tests."""
    if file_path.suffix in (".coll", ".mlir") and "filecheck" in file_path.parts:
        return FileCheckFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]
    return None
