"""The collection of tests/filecheck: a test for each RUN line, and one for faults of the file."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from lit_files import RunError, faults, run_lines, run_piped


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`, which writes the .expect files of tests/errors anew; read the diff."""
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files of tests/errors anew"
    )


class RunLine(pytest.Item):
    """A RUN line of a file."""

    command: str = ""

    def runtest(self) -> None:
        run_piped(self.command, self.path)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        if isinstance(excinfo.value, RunError):
            return f"RUN: {excinfo.value}"
        return str(super().repr_failure(excinfo, style="short"))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class Faults(RunLine):
    """The faults of a file that make it test less than it seems to."""

    def runtest(self) -> None:
        messages = list(faults(self.path.read_text(encoding="utf-8")))
        if messages:
            raise RunError("\n".join(messages))


class LitFile(pytest.File):
    """A file with RUN lines in comments."""

    def collect(self) -> Iterable[pytest.Item]:
        yield Faults.from_parent(self, name="faults")  # pyright: ignore[reportUnknownMemberType]
        for index, command in enumerate(run_lines(self.path.read_text(encoding="utf-8"))):
            item = RunLine.from_parent(self, name=f"run{index}")  # pyright: ignore[reportUnknownMemberType]
            item.command = command
            yield item


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    """Return a collector for a file of tests/filecheck, else None."""
    if file_path.suffix in (".coll", ".mlir") and "filecheck" in file_path.parts:
        return LitFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]
    return None
