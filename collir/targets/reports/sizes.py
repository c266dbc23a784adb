"""What each collective takes for buffers of many sizes, in the columns of nccl-tests."""

import json
import math
import re
from dataclasses import dataclass
from statistics import fmean
from typing import IO, Any, Self

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.arg_spec import ArgSpec

import collir
from collir.cost.collectives.table import COSTS
from collir.cost.network.group import CostError
from collir.cost.programs.cost import FunctionCost, cost
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.layout import DType
from collir.syntax.units import Quantity
from collir.targets.reports.cost import CostingTarget, heading_json
from collir.targets.reports.crossover import largest_buffer

TYPES = {
    DType.F16: "half",
    DType.BF16: "bfloat16",
    DType.F32: "float",
    DType.F64: "double",
    DType.I8: "int8",
    DType.I32: "int32",
    DType.I64: "int64",
}
"""What nccl-tests call element types."""

MOST_ROWS = 1000
"""No table is longer."""


def bytes_of(size: int | str) -> int:
    """Return the bytes that ``8GB``, ``8GiB``, ``8G`` (as nccl-tests take it: 8 GiB) or 8 mean.

    Raises:
        ValueError: it is no size.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", str(size))
    unit = found[2] if found else ""
    unit = f"{unit}iB" if unit in ("K", "M", "G", "T") else unit or "B"
    if not found or unit not in Quantity.BYTES.units:
        raise ValueError(f"'{size}' is not a size such as 1024, 8GB or 1GiB")
    return int(Quantity.BYTES.parse(found[1], unit))


@dataclass(frozen=True)
class Sizes:
    """A function that is costed for several sizes.

    Attributes:
        ops: its collectives.
        sizes: bytes of its largest argument or result on one rank.
        costs: what all of it costs, for each of the sizes.
    """

    ops: tuple[DistOp, ...]
    sizes: tuple[int, ...]
    costs: tuple[FunctionCost, ...]

    def rows(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of a collective: bytes, seconds, bytes per second."""
        op = self.ops[number]
        x = dist_type(op.input)
        rows: list[dict[str, Any]] = []
        for one in self.costs:
            step = one.steps[number]
            sent = step.collective
            elements = sent.size / x.dtype.bytes
            rows.append(
                {
                    "size": round(sent.size),
                    # Where blocks are sent, nccl-tests count those of one rank.
                    "count": round(elements / sent.ranks if op.kind.ordered else elements),
                    "type": TYPES[x.dtype],
                    "redop": x.reduction if x.reduction and op.kind.reduces else "none",
                    "root": 0 if "root" in (op.kind.before, op.kind.after) else -1,
                    "time_s": step.time,
                    "algbw": sent.algbw(step.time),
                    "busbw": sent.busbw(step.time),
                    "algorithm": step.algorithm,
                }
            )
        return rows


@dataclass(frozen=True)
class SizingTarget(CostingTarget):
    """The options of both targets."""

    begin: int | str = 8
    """The smallest size, such as 8 or 1KiB (`-b` of nccl-tests, also `from`): bytes of a function's
    largest argument or result on one rank. All buffers of the function grow with it."""
    end: int | str = "8GiB"
    """The largest size (`-e` of nccl-tests, also `to`)."""
    factor: float | int = 2
    """How many times as large each size is as the one before (`-f` of nccl-tests)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= bytes_of(self.begin) <= bytes_of(self.end):
            raise ValueError("begin is at least a byte, and at most end")
        if self.factor <= 1:
            raise ValueError("factor is more than 1")
        if len(self.sizes()) > MOST_ROWS:
            raise ValueError(f"these are more than {MOST_ROWS} sizes: take a larger factor")

    @classmethod
    def from_spec(cls, spec: ArgSpec) -> Self:
        """Return the target of a specification; `from` and `to` are other words for two options."""
        words = {"from": "begin", "to": "end"}  # a field cannot have a keyword's name
        return super().from_spec(
            ArgSpec(spec.name, {words.get(name, name): x for name, x in spec.parameters.items()})
        )

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes, smallest first; one more than ``MOST_ROWS`` at most."""
        found, size, end = list[int](), float(bytes_of(self.begin)), bytes_of(self.end)
        while size <= end and len(found) <= MOST_ROWS:
            found.append(round(size))
            size = max(size * self.factor, size + 1)
        return tuple(found)

    def found(self, module: ModuleOp) -> list[Sizes]:
        """Return the functions that have collectives, costed for all sizes.

        Raises:
            DiagnosticError: a function has no cost, or one for no size.
        """
        functions = functions_of(module)
        each = zip(functions, cost(module, self.cost_model()), strict=True)
        try:
            found = [self._sized(function, one) for function, one in each if one.steps]
        except CostError as error:
            raise DiagnosticError(Diagnostic(str(error))) from error
        if not found:
            raise DiagnosticError(Diagnostic("there is no function with collectives to cost"))
        return found

    def _sized(self, function: FuncOp, written: FunctionCost) -> Sizes:
        base, sizes = largest_buffer(function), self.sizes()
        ops = tuple(op for op in function.body.ops if is_collective(op))
        return Sizes(ops, sizes, tuple(written.scaled(size / base) for size in sizes))


@dataclass(frozen=True)
class SizesTarget(SizingTarget):
    """What each collective takes for buffers of many sizes, in the columns of nccl-tests.

    A table for each collective of each function: as many bytes and elements as nccl-tests would
    count, times in us, bandwidths in GB/s. For a function of several collectives there is one more
    table, of what all of it takes. `collir compare` puts measurements beside predictions.
    """

    name = "sizes"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        model = self.cost_model()
        found = self.found(module)
        ways = dict.fromkeys(model.how(one.costs[0].mesh.machine) for one in found)
        lines = [f"# Predicted by collir {collir.__version__}: costed {' and '.join(ways)}"]
        for one in found:
            for number in range(len(one.ops)):
                lines += self._table(one, number)
            if len(one.ops) > 1:
                lines += _whole(one)
        output.write("\n".join(lines) + "\n")

    def _table(self, one: Sizes, number: int) -> list[str]:
        cost = one.costs[0]
        sent = cost.steps[number].collective
        rows = one.rows(number)
        over = ", ".join(cost.mesh.short(sent.axes))
        about = f"@{cost.name} on @{cost.mesh.name}: {sent.kind} over {over}, {sent.ranks} ranks"
        return [
            "#",
            f"# Collective test starting: {_program(sent.kind)}",
            f"# nThread 1 nGpus 1 minBytes {one.sizes[0]} maxBytes {one.sizes[-1]} "
            f"step: {self.factor}(factor)",
            f"# {about}",
            *_HEAD,
            *map(_line, rows),
            f"# Avg bus bandwidth    : {fmean(row['busbw'] for row in rows) / 1e9:g}",
        ]


_HEAD = (
    "#",
    "#       size         count      type   redop    root     time   algbw   busbw  algorithm",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)",
)


def _program(kind: str) -> str:
    """Return the program of nccl-tests that measures a collective, or else the collective."""
    name = COSTS[kind].perf
    return f"{name}_perf" if name else kind


def _line(row: dict[str, Any]) -> str:
    """Return a row as nccl-tests print it."""
    return (
        f"{row['size']:>12}  {row['count']:>12}  {row['type']:>8}  {row['redop']:>6}  "
        f"{row['root']:>6}  {_digits(row['time_s'] * 1e6):>7}  {row['algbw'] / 1e9:6.2f}  "
        f"{row['busbw'] / 1e9:6.2f}  {row['algorithm']}"
    )


def _digits(microseconds: float) -> str:
    """Return a time with the digits that fit into its column."""
    places = next((n for n in (2, 1) if microseconds < 10 ** (6 - n)), 0)
    return f"{microseconds:.{places}f}"


def _whole(one: Sizes) -> list[str]:
    rows = zip(one.sizes, one.costs, strict=True)
    return [
        "#",
        f"# @{one.costs[0].name}: all {len(one.ops)} collectives; bytes are those of the largest "
        "argument or result on a rank",
        "#      bytes     time   algbw",
        "#        (B)     (us)  (GB/s)",
        *(
            f"{size:>12}  {_digits(cost.time * 1e6):>7}  {_rate(size, cost.time) / 1e9:6.2f}"
            for size, cost in rows
        ),
    ]


def _rate(size: int, seconds: float) -> float:
    return size / seconds if seconds else math.inf


@dataclass(frozen=True)
class SizesJsonTarget(SizingTarget):
    """The tables of the target sizes for programs, in JSON: bytes, seconds, bytes per second."""

    name = "sizes-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = [_json(one) for one in self.found(module)]
        json.dump({"functions": found}, output, indent=2)
        output.write("\n")


def _json(one: Sizes) -> dict[str, Any]:
    cost = one.costs[0]
    return {
        **heading_json(cost),
        "rows": [
            {"bytes": size, "time_s": each.time}
            for size, each in zip(one.sizes, one.costs, strict=True)
        ],
        "steps": [
            {
                "op": op.mnemonic,
                "over": list(step.collective.axes),
                "ranks": step.collective.ranks,
                "rows": [
                    {key: None if value == math.inf else value for key, value in row.items()}
                    for row in one.rows(number)
                ],
            }
            for number, (op, step) in enumerate(zip(one.ops, cost.steps, strict=True))
        ],
    }
