"""Tests of mutated programs: no traceback and no internal error, whatever the input."""

import io
import random
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collir.tools import collopt

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "examples").glob("*.coll"), *(ROOT / "tests/filecheck").rglob("*.coll")])
TEXTS = [path.read_text(encoding="utf-8") for path in FILES]
PROGRAMS = [
    path
    for path, text in zip(FILES, TEXTS, strict=True)
    if not re.search(
        r"RUN: not|--split-input-file|--verify-diagnostics|--parsing-diagnostics", text
    )
]
"""The files that are a single module without an error."""

_TOKEN = re.compile(r"[%@]?\w+|\s+|.", re.DOTALL)
_STRANGE = [
    "0", "-1", "1", "3", "2147483648", "9223372036854775807", "9" * 400, "1e999", "0.5", "-0",
    "%g", "@m", "@c", "data", "data.gpu", "partial(sum: data)", "root(data)", "f32[]", "[", "]",
    "(", ")", "{", "}", "@", ":", ",", "=", "*", '"', "//", "\x00", "\ufeff", "é", "over", "dim",
    "return", "machine", "mesh", "func", "kind = ring", "from", "GB/s", "us", "bf16", "i8", "avg",
]  # fmt: skip
_ARGUMENTS = [
    [],
    ["-t", "mlir"],
    ["-t", "mlir", "--print-op-generic"],
    ["-t", "mpi"],
    ["-t", "mpi{main=true}"],
    ["-p", "decompose"],
    ["-p", "decompose{strategy=reduce-ar-bcast}", "-t", "mpi"],
    ["-p", "decompose{strategy=ar-per-level},canonicalize,cse,dce"],
]


def mutated(rng: random.Random) -> str:
    """Return a text with a few tokens dropped, doubled, swapped, replaced or from another text."""
    text = rng.choice(TEXTS)
    if rng.random() < 0.1:
        second = rng.choice(TEXTS)
        text = text[: rng.randrange(len(text))] + second[rng.randrange(len(second)) :]
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(6):
            case 0:
                tokens[i] = ""
            case 1:
                tokens[i] += tokens[i]
            case 2:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case 3:
                tokens[i] = tokens[j]
            case 4:
                tokens[i] = rng.choice(_STRANGE)
            case _:
                numbers = [k for k, t in enumerate(tokens) if t.isdigit()]
                if numbers:
                    tokens[rng.choice(numbers)] = rng.choice(_STRANGE[:10])
    return "".join(tokens)


def run(data: bytes, suffix: str, arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Return the status of collopt on a file of these bytes, with its stdout and stderr."""
    path = folder / f"fuzz{suffix}"
    path.write_bytes(data)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = collopt.main([str(path), *arguments])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def mutated_mlir(rng: random.Random) -> str:
    """Return a file printed as MLIR, with a few tokens replaced."""
    form = rng.choice([[], ["--print-op-generic"]])
    out = io.StringIO()
    with redirect_stdout(out):
        assert collopt.main([str(rng.choice(PROGRAMS)), "-t", "mlir", *form]) == 0
    tokens = _TOKEN.findall(out.getvalue())
    for _ in range(rng.choice([1, 1, 2])):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[i] = rng.choice(["", tokens[j], tokens[i] * 2, rng.choice(_STRANGE)])
    return "".join(tokens)


def check(status: int, out: str, err: str) -> None:
    """Check that a run printed either output or an error."""
    assert status in (0, 1), err
    assert (status == 1) == ("error: " in err), err
    assert status == 0 or not out


@pytest.mark.turns
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=54, derandomize=True)
def test_mutated_programs(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    check(*run(mutated(rng).encode(), ".coll", rng.choice(_ARGUMENTS), folder))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=18, derandomize=True)
def test_mutated_mlir(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    check(*run(mutated_mlir(rng).encode(), ".mlir", rng.choice(_ARGUMENTS), folder))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=18, derandomize=True)
def test_what_is_accepted_prints_as_what_is_accepted(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    status, out, _ = run(mutated(rng).encode(), ".coll", rng.choice([[], ["-p", "cse"]]), folder)
    if status == 0:
        assert run(out.encode(), ".coll", [], folder) == (0, out, "")


@given(data=st.binary(max_size=300))
@settings(max_examples=18, derandomize=True)
def test_bytes(data: bytes, folder: Path) -> None:
    check(*run(data, ".coll", [], folder))
