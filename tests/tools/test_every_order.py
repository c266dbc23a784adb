"""Every example is run after every documented order of passes, by every engine, at small sizes: it
is right, or refused with a diagnostic. A few are run each time, others by every seed."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.harness.seeds import some

import collir
from collir.dialects.machine import mesh_of
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.passes.pipelines import PIPELINES
from collir.tools import collrun
from collir.tools.engines import ENGINES
from collir.tools.shell import BAD_INPUT
from collir.transforms.smaller import dimensions

EXAMPLES = Path(__file__).parents[2] / "examples"

SIZES = {
    "batch": 8, "classes": 8, "count": 2, "experts": 8, "grid": 2, "groups": 8, "heads": 8,
    "hidden": 32, "inner": 32, "kv": 8, "layers": 4, "patch": 4, "places": 8, "ranks": 8, "seq": 8,
    "side": 32, "vocab": 32, "width": 16, "words": 16,
}  # fmt: skip
"""Small values of size parameters."""

ORDERS = [
    *PIPELINES,
    "",
    "accumulate,canonicalize",
    "canonicalize,ddp,cse",
    "decompose",
    "differentiate",
    "differentiate,inline,unroll,ddp",
    "differentiate,propagate",
    "differentiate,propagate,accumulate{over=data},fsdp",
    "differentiate,split-backward",
    "expand",
    "inline,unroll,ddp",
    "microbatch{microbatches=2},propagate",
    "pipeline{microbatches=2}",
    "pipeline{microbatches=4 schedule=zb-h1}",
    "pipeline{microbatches=2 schedule=interleaved}",
    "pipeline{microbatches=2 schedule=zb-v}",
    "place,default",
    "propagate",
    "ring-attention,default",
    "rotate,overlap",
    "unshard,shard,decompose",
]
"""The pipelines, and orders that the documentation shows."""

FILES = [path for path in sorted(EXAMPLES.rglob("*.coll")) if "plugin" not in path.parts]
SMALL = [
    EXAMPLES / f"{name}.coll" for name in ("layer", "layers", "stages", "uneven", "redistribute")
]
CASES = [(path, order, engine) for path in FILES for order in ORDERS for engine in ENGINES]
MOST_DEVICES = 8


@cache
def small(path: Path) -> list[str] | None:
    """Return the options that make a program small; None if it has too many devices."""
    module = collir.parse(path)
    functions = functions_of(module)
    if not functions or max(mesh_of(f).devices for f in functions) > MOST_DEVICES:
        return None
    parameters = {name: value for f in functions for name, value in parameters_of(f).items()}
    given = {n: SIZES[n] for n, value in parameters.items() if SIZES.get(n, value) < value}
    if not parameters:
        given = {str(n): _smaller(n) for n in dimensions(module) if _smaller(n) < n}
    return [word for name, size in given.items() for word in ("--set-size", f"{name}={size}")]


def _smaller(size: int) -> int:
    """Return a large size with fewer factors of 2."""
    odd = size // (size & -size)
    return odd * 64 if size > 4096 else size


def quick(case: tuple[Path, str, str]) -> bool:
    """Return whether a case takes little time."""
    return case[0] in SMALL and case[2] != "jax"


@pytest.mark.turns
@pytest.mark.parametrize(
    ("path", "order", "engine"),
    [
        *some([case for case in CASES if quick(case)], 2, "orders"),
        *some([case for case in CASES if not quick(case)], 0, "orders"),
    ],
)
def test_examples_run(
    path: Path, order: str, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if (package := ENGINES[engine].package) and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if (sizes := small(path)) is None:
        pytest.skip("it has too many devices")
    status = collrun.main([str(path), "-p", order, "--engine", engine, *sizes])
    out, err = capsys.readouterr()
    assert "WRONG" not in out
    assert status == 0 or (status == BAD_INPUT and "error:" in err), err
