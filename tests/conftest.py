"""The collection of tests/filecheck, and the seeds of random tests."""

import gc
import os
import sys
import zlib
from collections.abc import Generator, Iterable
from itertools import compress
from operator import not_
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from support.harness import seeds
from support.harness.lit_files import RunError, faults, run_lines, run_piped

from collir.tools.mpi_run import SHARING

os.environ |= SHARING | os.environ  # most tests start more ranks than there are cores

# Many tests start new processes of Python: only the first compiles the package, whatever is set.
sys.dont_write_bytecode = False
os.environ["PYTHONPATH"] = os.pathsep.join(  # those of tests/support import their modules
    [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parent)]
)
os.environ["COLLIR_CACHE"] = ""  # each test compiles what it sweeps
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What tests leave behind is in cycles: the searches for it would take a tenth of all time.
gc.set_threshold(100_000, 20, 20)

# Tests never assert times: the machine may have other work.
hypothesis.settings.register_profile(
    "collir", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("collir")


def pytest_collection_finish() -> None:
    """Leave what is there for good out of the searches for garbage."""
    gc.collect()
    gc.freeze()


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


# --- seeds --------------------------------------------------------------------------------------


def pytest_report_header() -> str:
    """Say how to repeat the random tests."""
    return f"random tests: {seeds.VARIABLE}={seeds.SEED}"


@pytest.fixture(autouse=True)
def seed_of_run(request: pytest.FixtureRequest) -> None:
    """The seed that ``fresh`` starts from: that of the run, or one with which the test failed."""
    seeds.use(getattr(request, "param", seeds.SEED))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test again with the seeds with which it failed."""
    name = f"{metafunc.definition.nodeid}"
    if earlier := [seed for seed in seeds.failed(name) if seed != seeds.SEED]:
        metafunc.parametrize(
            "seed_of_run",
            [seeds.SEED, *earlier],
            indirect=True,
            ids=["", *(f"seed {seed}" for seed in earlier)],
        )


TURNS = 8
"""The number of commits of which one runs a test that takes turns."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let Hypothesis start from the seed of the run, but for tests whose cases are fixed; leave out
    the tests whose turn it is not where slow ones are left out."""
    if "not slow" in config.option.markexpr:
        here = [*map(_has_turn, items)]
        config.hook.pytest_deselected(items=[*compress(items, map(not_, here))])
        items[:] = compress(items, here)
    for item in items:
        test: Any = getattr(item, "obj", None)
        if hypothesis.is_hypothesis_test(test) and not item.get_closest_marker("fixed_cases"):
            hypothesis.seed(seeds.SEED)(test)


def _has_turn(item: pytest.Item) -> bool:
    """Return whether a test takes no turns, or has its turn at this commit: that of those with the
    same argument of the marker; by default each has its own."""
    if (marker := item.get_closest_marker("turns")) is None:
        return True
    name = marker.args[0] if marker.args else item.nodeid
    return (zlib.crc32(name.encode()) + seeds.SEED) % TURNS == 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Keep the seed of a random test that failed."""
    report = yield
    if report.failed and "fresh" in getattr(getattr(item, "module", None), "__dict__", {}):
        seeds.remember(item.nodeid.partition("[")[0], seeds.current())
    return report
