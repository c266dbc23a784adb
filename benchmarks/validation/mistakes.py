"""How many mistakes the runs of `validate` find, and how many right rewrites they take for one.

Mistakes are planted in training steps of the models that ship, at small sizes, in f32 and bf16:
signs, factors, comparisons, masks, axes, seeds, operands and values. Programs whose results move by
less than 1e-6 on other inputs, in float64 on one device, have no mistake and do not count. A
rewrite is what a pipeline of passes makes of a step. Proofs are switched off: only runs decide.

``PYTHONPATH=tests python benchmarks/validation/mistakes.py --mistakes 2000 --rewrites 500``
"""

import argparse
import collections
import contextlib
import io
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from support.semantics.planted import differ, planted
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType
from collir.ir.renaming import map_attributes
from collir.layout import DType
from collir.semantics.validation.proof import result_types
from collir.semantics.validation.runs import run_both
from collir.transforms.inlining import function_without_calls

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.independent.models import PASSES, SMALL, small

ENDS = ("found", "named as blind", "missed")
Counts = collections.Counter[str]


def in_dtype(module: ModuleOp, dtype: DType) -> None:
    """Give all floats of the functions of a module one type."""

    def mapped(attribute: Attribute) -> Attribute:
        if isinstance(attribute, DistTensorType) and attribute.data.dtype.is_float:
            return DistTensorType(replace(attribute.data, dtype=dtype))
        return attribute

    for function in module.ops:
        if not isinstance(function, FuncOp):
            continue
        map_attributes(function, mapped)
        for op in function.walk():
            if isinstance(op, DistOp) and op.mnemonic == "cast":
                is_float = DType(op.word("dtype")).is_float
                op.properties["dtype"] = StringAttr(dtype if is_float else op.word("dtype"))


def steps() -> Iterator[tuple[str, str, ModuleOp]]:
    """Yield the name of each training step, of its function, and its module."""
    for dtype in (DType.F32, DType.BF16):
        for name, function, sizes in SMALL:
            module = small(name, function, sizes)
            in_dtype(module, dtype)
            yield f"{name} @{function} {dtype}", function, module


def flat(module: ModuleOp, name: str, passes: str) -> FuncOp:
    """Return a function behind some passes, without calls."""
    with contextlib.redirect_stderr(io.StringIO()):
        module = collir.run_passes(module.clone(), passes)
    functions = (op for op in module.ops if isinstance(op, FuncOp))
    return function_without_calls(next(f for f in functions if f.sym_name.data == name))


def mistakes(count: int, seed: int, counts: Counts) -> None:
    """Plant mistakes, and count how many are found."""
    rng, begin = random.Random(seed), time.process_time()
    functions = [
        (label, flat(module, name, "differentiate,propagate,inline,cse"))
        for label, name, module in steps()
    ]
    while (done := sum(counts[end] for end in ENDS)) < count:
        label, before = rng.choice(functions)
        drawn = planted(rng, before)
        if drawn is None:
            continue
        kind, after, name = drawn
        if differ(before, after):
            compared = run_both(before, after, result_types(before), seed)
            named = name in compared.response.blind
            end = "found" if compared.problem else ENDS[1 if named else 2]
            counts.update([end, f"{end}: {kind}"])
            if not compared.problem:
                print(f"{end}: {label}, {kind}, {name}; {compared.response.text}", flush=True)
            if done % 100 == 0:
                print(f"{done} of {count}, {time.process_time() - begin:.0f} s", flush=True)
        else:
            counts["no mistake"] += 1
        after.detach()


def rewrites(count: int, seed: int, counts: Counts) -> None:
    """Compare steps with what pipelines of passes make of them, then again on other inputs."""
    rng, begin = random.Random(seed), time.process_time()
    pairs = [(label, name, m, passes) for label, name, m in steps() for passes in PASSES]
    rng.shuffle(pairs)
    for done in range(count):
        label, name, module, passes = pairs[done % len(pairs)]
        try:
            pair = [flat(module, name, p) for p in ("differentiate,propagate", passes)]
        except collir.DiagnosticError:
            counts["rewrites refused by a pass"] += 1
            continue
        types = result_types(pair[0])
        if types != result_types(pair[1]) or mesh_of(pair[0]) != mesh_of(pair[1]):
            counts["rewrites of other types"] += 1
            continue
        compared = run_both(*pair, types, seed + done // len(pairs))
        counts["rewrites taken for mistakes" if compared.problem else "rewrites equal"] += 1
        if compared.problem or compared.response.blind:
            text = compared.problem or compared.response.text
            print(f"{label} -p {passes}: {text}", flush=True)
        if done % 20 == 0:
            print(f"{done} of {count}, {time.process_time() - begin:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mistakes", type=int, default=2000)
    parser.add_argument("--rewrites", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts: Counts = collections.Counter()
    mistakes(arguments.mistakes, arguments.seed, counts)
    rewrites(arguments.rewrites, arguments.seed, counts)
    for key, number in sorted(counts.items()):
        print(f"{number:6d} {key}")


if __name__ == "__main__":
    main()
