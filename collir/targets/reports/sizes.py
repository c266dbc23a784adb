"""The time of each collective for buffers of many sizes, in the columns of nccl-tests."""

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
from xdsl.utils.target import Target

import collir
from collir.cost.collectives.table import COSTS
from collir.cost.network.group import CostError
from collir.cost.options import CostOptions
from collir.cost.programs.classes import classes_of
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of, refuse_nested
from collir.layout import DType
from collir.syntax.units import Quantity
from collir.targets.reports.cost import heading_json
from collir.targets.reports.crossover import largest_buffer

TYPES = {
    DType.F16: "half",
    DType.BF16: "bfloat16",
    DType.F32: "float",
    DType.F64: "double",
    DType.I8: "int8",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.BOOL: "uint8",
}
"""The names of element types in nccl-tests."""

MOST_ROWS = 1000
"""The largest number of rows of a table."""


def bytes_of(size: int | str) -> int:
    """Return the bytes of a size: ``8GB``, ``8GiB``, ``8G`` (8 GiB, as in nccl-tests) or 8.

    Raises:
        ValueError: the text is no size, or is too large.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", str(size))
    unit = match[2] if match else ""
    unit = f"{unit}iB" if unit in ("K", "M", "G", "T") else unit or "B"
    if not match or unit not in Quantity.BYTES.units:
        raise ValueError(f"'{size}' is not a size such as 1024, 8GB or 1GiB")
    if not (number := Quantity.BYTES.parse(match[1], unit)) < 2**63:
        raise ValueError("a size is less than 2^63 bytes")
    return int(number)


@dataclass(frozen=True)
class Sizes:
    """A function, simulated for several sizes.

    Attributes:
        ops: the collectives of the function; one that devices run at several places comes once for
            each of them.
        at: their places, empty where all devices run them.
        sizes: bytes of the largest argument or result on one rank.
        simulations: the simulation of the whole function, for each of the sizes.
    """

    ops: tuple[DistOp, ...]
    at: tuple[str, ...]
    sizes: tuple[int, ...]
    simulations: tuple[Simulation, ...]

    def rows(self, number: int) -> list[dict[str, Any]]:
        """Return the rows of a collective: bytes, seconds, bytes per second."""
        op = self.ops[number]
        x = dist_type(op.input)
        rows: list[dict[str, Any]] = []
        for simulation in self.simulations:
            step = simulation.collectives[number]
            collective = step.collective
            elements = collective.size / x.dtype.bytes
            rows.append(
                {
                    "size": round(collective.size),
                    # If blocks are sent, nccl-tests count the elements of one rank.
                    "count": round(elements / collective.ranks if op.kind.ordered else elements),
                    "type": TYPES[x.dtype],
                    "redop": x.reduction if x.reduction and op.kind.reduces else "none",
                    "root": 0 if "root" in (op.kind.before, op.kind.after) else -1,
                    "time_s": step.time,
                    "algbw": collective.algbw(step.time),
                    "busbw": collective.busbw(step.time),
                    "algorithm": step.algorithm,
                }
            )
        return rows


@dataclass(frozen=True)
class SizingTarget(CostOptions, Target):
    """The options of both targets."""

    begin: int | str = 8
    """The smallest size, such as 8 or 1KiB (`-b` of nccl-tests, also `from`), in bytes of a
    function's largest argument or result on one rank. All buffers of the function grow with it."""
    end: int | str = "8GiB"
    """The largest size (`-e` of nccl-tests, also `to`)."""
    factor: float | int = 2
    """The ratio of each size to the size before (`-f` of nccl-tests)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= bytes_of(self.begin) <= bytes_of(self.end):
            raise ValueError("begin is at least a byte, and at most end")
        if not 1 < self.factor < 2**63:
            raise ValueError("factor is more than 1, and less than 2^63")
        if len(self.sizes()) > MOST_ROWS:
            raise ValueError(f"these are more than {MOST_ROWS} sizes: take a larger factor")

    @classmethod
    def from_spec(cls, spec: ArgSpec) -> Self:
        """Return the target of a specification; `from` and `to` stand for `begin` and `end`."""
        words = {"from": "begin", "to": "end"}  # a field cannot have a keyword's name
        return super().from_spec(
            ArgSpec(spec.name, {words.get(name, name): x for name, x in spec.parameters.items()})
        )

    def sizes(self) -> tuple[int, ...]:
        """Return the sizes, smallest first; at most ``MOST_ROWS`` + 1 of them."""
        sizes, size, end = list[int](), float(bytes_of(self.begin)), bytes_of(self.end)
        while size <= end and len(sizes) <= MOST_ROWS:
            sizes.append(round(size))
            size = max(size * self.factor, size + 1)
        return tuple(sizes)

    def sized_functions(self, module: ModuleOp) -> list[Sizes]:
        """Return the functions that have collectives, simulated for all sizes.

        Raises:
            DiagnosticError: a function has no cost, or no function has collectives.
        """
        functions = functions_of(module)
        refuse_nested(functions, "is not costed by sizes")
        simulations = zip(functions, simulate(module, self.cost_model()), strict=True)
        try:
            sized = [
                self._sized(function, simulation)
                for function, simulation in simulations
                if simulation.collectives
            ]
        except CostError as error:
            raise DiagnosticError(Diagnostic(str(error))) from error
        if not sized:
            raise DiagnosticError(Diagnostic("there is no function with collectives to cost"))
        return sized

    def _sized(self, function: FuncOp, written: Simulation) -> Sizes:
        base, sizes = largest_buffer(function), self.sizes()
        held = [dist_type(argument) for argument in function.args]
        classes = classes_of(function.body.ops, written.mesh, by_kind=True, arguments=held)
        instances = classes.instances(function.body.ops)
        run = [(x.step, x.at) for x in instances if is_collective(x.step)]
        ops, at = zip(*run, strict=True)
        return Sizes(ops, at, sizes, tuple(written.scaled(size / base) for size in sizes))


@dataclass(frozen=True)
class SizesTarget(SizingTarget):
    """The time of each collective for buffers of many sizes, in the columns of nccl-tests.

    Each collective of each function has a table: bytes and elements as nccl-tests count them,
    times in us, bandwidths in GB/s. A function of several collectives has one more table, of
    their total time. `collir compare` puts measurements beside predictions.
    """

    name = "sizes"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        model = self.cost_model()
        functions = self.sized_functions(module)
        costings = dict.fromkeys(
            model.how(sizes.simulations[0].mesh.machine) for sizes in functions
        )
        lines = [f"# Predicted by collir {collir.__version__}: costed {' and '.join(costings)}"]
        for sizes in functions:
            for number in range(len(sizes.ops)):
                lines += self._table(sizes, number)
            if len(sizes.ops) > 1:
                lines += _whole(sizes)
        output.write("\n".join(lines) + "\n")

    def _table(self, sizes: Sizes, number: int) -> list[str]:
        first = sizes.simulations[0]
        collective = first.collectives[number].collective
        rows = sizes.rows(number)
        over = ", ".join(first.mesh.short(collective.axes))
        title = f"@{first.name} on @{first.mesh.name}: {collective.kind}"
        title += f" over {over}, {collective.ranks} ranks" if over else " inside devices"
        title += f", at {at}" if (at := sizes.at[number]) else ""
        return [
            "#",
            f"# Collective test starting: {_program(collective.kind)}",
            f"# nThread 1 nGpus 1 minBytes {sizes.sizes[0]} maxBytes {sizes.sizes[-1]} "
            f"step: {self.factor}(factor)",
            f"# {title}",
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
    """Return the program of nccl-tests that measures a collective, or the collective itself."""
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


def _whole(sizes: Sizes) -> list[str]:
    rows = zip(sizes.sizes, sizes.simulations, strict=True)
    return [
        "#",
        f"# @{sizes.simulations[0].name}: all {len(sizes.ops)} collectives; bytes are those of the "
        "largest argument or result on a rank",
        "#      bytes     time   algbw",
        "#        (B)     (us)  (GB/s)",
        *(
            f"{size:>12}  {_digits(x.time * 1e6):>7}  {_rate(size, x.time) / 1e9:6.2f}"
            for size, x in rows
        ),
    ]


def _rate(size: int, seconds: float) -> float:
    return size / seconds if seconds else math.inf


@dataclass(frozen=True)
class SizesJsonTarget(SizingTarget):
    """The tables of the target sizes for programs, in JSON: bytes, seconds, bytes per second."""

    name = "sizes-json"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        functions = [_json(sizes) for sizes in self.sized_functions(module)]
        json.dump({"functions": functions}, output, indent=2)
        output.write("\n")


def _json(sizes: Sizes) -> dict[str, Any]:
    first = sizes.simulations[0]
    return {
        **heading_json(first),
        "rows": [
            {"bytes": size, "time_s": simulation.time}
            for size, simulation in zip(sizes.sizes, sizes.simulations, strict=True)
        ],
        "steps": [
            {
                "op": op.mnemonic,
                **({"at": at} if at else {}),
                "over": list(step.collective.axes),
                "ranks": step.collective.ranks,
                "rows": [
                    {key: None if value == math.inf else value for key, value in row.items()}
                    for row in sizes.rows(number)
                ],
            }
            for number, (op, at, step) in enumerate(
                zip(sizes.ops, sizes.at, first.collectives, strict=True)
            )
        ],
    }
