"""A function of StableHLO as a graph of JAX's operations, with calls inlined."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collir.importing.models.constants import (
    CONSTANT,
    constant_node,
    form_of,
    named_constants,
    unrepeated,
)
from collir.importing.models.export import fault
from collir.importing.models.graph import ModelGraph, ModelInput, ModelNode, Ref, Shaped, live
from collir.importing.models.rows.table import JAX
from collir.importing.stablehlo.evaluated import MAPS, evaluated
from collir.importing.stablehlo.loops import counted
from collir.importing.stablehlo.operations import UnknownForm, as_jax, reduction, short
from collir.importing.stablehlo.text import DTYPES as NUMPY
from collir.importing.stablehlo.text import (
    Region,
    StableHloFunction,
    StableHloModule,
    StableHloOperation,
    StableHloTensor,
    StableHloValue,
)
from collir.importing.values import MALFORMED
from collir.ir.diagnostics import Diagnostic, DiagnosticError

DTYPES = {
    "f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "i64": "i64", "i32": "i32",
    "i16": "i16", "i8": "i8", "ui8": "u8", "i1": "bool",
}  # fmt: skip
"""The dtypes of StableHLO that ``.coll`` has, and their names there."""

_UNSIGNED = ("ui16", "ui32", "ui64")

_MOST_NODES = 2**20
"""The most operations behind all calls."""

_LARGE = 2**26
"""The most elements of a constant that is computed while a program is imported."""

_IDENTITIES = {
    "add": (0,), "multiply": (1,), "maximum": (-math.inf,), "minimum": (math.inf,),
    "and": (True, -1), "or": (False, 0),
}  # fmt: skip

_SILENT = ("optimization_barrier", "copy", "reduce_precision", "propagation_barrier",
           "annotate_device_placement")  # fmt: skip
"""Operations whose results are their operands."""

_CUSTOM = {"mhlo.erf": "erf", "mhlo.topk": "top_k", "mhlo.tan": "tan", "mhlo.square": "square"}
"""Custom calls that are operations, and their names."""


@dataclass
class FunctionGraph:
    """A function as a graph.

    Attributes:
        remarks: what is not as in the text, each with its line.
    """

    graph: ModelGraph
    remarks: dict[str, str] = field(default_factory=dict[str, str])


Layout = Callable[[Any, int], tuple[str, ...]]
"""Returns what stands behind the size of each dimension of an array with a sharding and a rank;
nothing if it names no axis."""


def graph_of(
    module: StableHloModule,
    function: StableHloFunction,
    inputs: Sequence[ModelInput],
    layout: Layout,
) -> FunctionGraph:
    """Return a function of a module as a graph.

    Args:
        inputs: its inputs, without their names in the graph.

    Raises:
        DiagnosticError: an operation has no form in JAX, or a value has a dtype that ``.coll``
            lacks.
    """
    reader = _Reader(module, layout)
    named: list[ModelInput] = []
    for value, x in zip(function.body.takes, inputs, strict=True):
        made = reader.fresh()
        reader.values[value.name] = Ref(made)
        named.append(ModelInput(made, x.value, x.of, x.kind, x.axes))
    results = reader.read(function.body.operations)
    for place, attributes in enumerate(function.results):
        sharding = attributes.get("sdy.sharding") or attributes.get("mhlo.sharding")
        if sharding is not None and isinstance(results[place], Ref):
            results[place] = reader.constrained(
                results[place], sharding, function.body.operations[-1]
            )
    outputs = [reader.kept(x, type) for x, type in zip(results, reader.types(results), strict=True)]
    return FunctionGraph(
        named_constants(live(ModelGraph(named, [*reader.nodes], outputs))), reader.remarks
    )


def shaped(x: Any, what: str, at: StableHloOperation | StableHloValue | None = None) -> Shaped:
    """Return the type of a value.

    Raises:
        DiagnosticError: it is no array of a known size and a dtype of ``.coll``.
    """
    line = _place(at) if isinstance(at, StableHloOperation) else ""
    if not isinstance(x, StableHloTensor):
        raise fault(f"{what} is of {x}, which is no array", line)
    if None in x.sizes:
        raise fault(f"{what} has a size that depends on data", line)
    sizes = tuple(n for n in x.sizes if n is not None)
    if x.dtype == "ui32" and sizes[-1:] == (2,):
        return Shaped(sizes, "i32")  # a key of random numbers
    if x.dtype not in DTYPES and x.dtype not in _UNSIGNED:
        raise fault(f"{what} is of {x.dtype}, a dtype that .coll does not have", line)
    return Shaped(sizes, DTYPES.get(x.dtype, "u32"))


def malformed(op: str, line: str) -> DiagnosticError:
    """Return the error of an operation whose operands or attributes do not fit its name."""
    return fault(
        f"{op} is not understood: it has not the operands or attributes of StableHLO", line
    )


def _place(x: StableHloOperation) -> str:
    return x.source or f"{x.at.file}:{x.at.line}"


class _Reader:
    """Reads operations into nodes."""

    def __init__(self, module: StableHloModule, layout: Layout):
        self.module, self.layout = module, layout
        self.nodes: list[ModelNode] = []
        self.remarks: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.known: dict[str, Any] = {}
        self.made: dict[str, ModelNode] = {}
        self.shapes: dict[str, Shaped] = {}
        self.counts = [0]
        self.calls: list[str] = []
        self.caller = ""

    def fresh(self) -> str:
        self.counts[0] += 1
        return f"v{self.counts[0]}"

    def inner(self) -> "_Reader":
        """Return a reader of a body inside, which knows the values outside."""
        made = _Reader(self.module, self.layout)
        made.values, made.known, made.counts = dict(self.values), dict(self.known), self.counts
        made.remarks, made.calls, made.caller = self.remarks, self.calls, self.caller
        made.shapes = self.shapes
        return made

    def line(self, x: StableHloOperation) -> str:
        """Return the line of an operation: the user's, or else that of the text."""
        return x.source or self.caller or _place(x)

    # --- values ---------------------------------------------------------------------------------

    def value(self, name: str, x: StableHloOperation) -> Any:
        """Return what an operand is: a value, or a number."""
        if name not in self.values:
            at = Diagnostic(f"there is no value {name} above", x.at)
            raise DiagnosticError(at)
        made = self.values[name]
        known = self.known.get(made.name) if isinstance(made, Ref) else None
        return made if known is None or known.shape else _number(known)

    def keep(self, array: Any, type: Shaped) -> Ref:
        """Add a known value; unused ones are left out later."""
        name = self.fresh()
        self.known[name], self.shapes[name] = array, type
        if array.dtype.kind not in "fiub" or array.dtype.itemsize < 4:
            array = array if array.dtype.kind in "iub" else array.astype(np.float64)
        self.nodes.append(constant_node(name, array, type.dtype, "", ""))
        return Ref(name)

    def kept(self, x: Any, type: Shaped) -> str:
        """Return the name of a value; a number becomes one."""
        return x.name if isinstance(x, Ref) else self.keep(np.asarray(x), type).name

    def types(self, values: Sequence[Any]) -> list[Shaped]:
        return [self.shapes.get(x.name, Shaped((), "f32")) if isinstance(x, Ref) else
                Shaped((), "i64" if isinstance(x, int) else "f64") for x in values]  # fmt: skip

    def add(
        self, op: str, operands: Sequence[Any], params: Mapping[str, Any],
        results: Sequence[Shaped], x: StableHloOperation,
    ) -> list[Ref]:  # fmt: skip
        """Add an operation of JAX, and return its values."""
        path = ".".join(part for part in x.path.split("/")[:-1] if "(" not in part)
        node = ModelNode(
            self.fresh(), JAX + op, tuple(operands), params, tuple(results), path, self.line(x)
        )
        self.nodes.append(node)
        if self.counts[0] > _MOST_NODES:
            raise fault(f"the program has more than {_MOST_NODES} operations", _place(x))
        if len(results) == 1:
            self.made[node.name], self.shapes[node.name] = node, results[0]
            return [Ref(node.name)]
        made: list[Ref] = []
        for number, result in enumerate(results):
            part = ModelNode(self.fresh(), "getitem", (Ref(node.name), number), {}, (result,), path)
            self.nodes.append(part)
            self.shapes[part.name] = result
            made.append(Ref(part.name))
        return made

    # --- operations -----------------------------------------------------------------------------

    def read(self, operations: Sequence[StableHloOperation]) -> list[Any]:
        """Read operations, and return what the last one returns."""
        for x in operations:
            if x.op.endswith("return"):
                return [self.value(name, x) for name in x.operands]
            try:
                results = self.operation(x, [self.value(name, x) for name in x.operands])
                assert len(results) == len(x.results)
            except MALFORMED as error:
                raise malformed(x.op, _place(x)) from error
            self.values.update(zip(x.results, results, strict=True))
            if len(x.results) > 1 and x.results[0].endswith("#0"):
                self.values[x.results[0][:-2]] = results[0]
        if operations:
            raise DiagnosticError(Diagnostic("nothing is returned behind this", operations[-1].at))
        return []

    def operation(self, x: StableHloOperation, operands: list[Any]) -> Sequence[Any]:
        """Read an operation, and return its results."""
        name = short(x.op)
        callee = x.attributes.get("callee", x.attributes.get("call_target_name", ""))
        callee = str(callee).lstrip("@").strip('"')
        if name == "constant":
            return [self.keep(x.attributes["value"], shaped(x.types[0], "a constant", x))]
        if name == "custom_call":
            name = _CUSTOM.get(callee, callee)
            if name == "Sharding":
                return [self.constrained(operands[0], x.attributes.get("mhlo.sharding", ""), x)]
        if name in _SILENT:
            return operands
        if name in ("sharding_constraint", "reshard"):
            return [self.constrained(operands[0], x.attributes.get("sharding", ""), x)]
        if name == "call":
            return self.called(callee, x, operands)
        if name == "composite":
            own = str(x.attributes.get("name", "") or (x.attributes.get("words") or [""])[0])
            if own.startswith("chlo.") and len(x.types) == 1:
                return self.one(own, x, operands)
            callee = str(x.attributes.get("decomposition", "")).lstrip("@")
            return self.called(callee, x, operands)
        if name in ("case", "if"):
            return self.cases(x, operands)
        if name == "while":
            return self.loop(x, operands)
        if name in ("manual_computation", "SPMDFullToShardShape"):
            message = (
                "a shard_map is of blocks: import what XLA makes of it, with collir import hlo"
            )
            raise fault(message, self.line(x))
        if name == "reduce" and len(operands) == 4:
            return self.best(x, operands)
        if name == "sort":
            return self.sorted(x, operands)
        return self.one(name, x, operands)

    def one(self, name: str, x: StableHloOperation, operands: list[Any]) -> Sequence[Any]:
        """Read an operation on arrays."""
        results = [shaped(type, f"StableHLO's {short(name)}", x) for type in x.types]
        try:
            op, given, params = as_jax(
                x if x.op.endswith(f".{name}") else _renamed(x, name), operands
            )
        except (UnknownForm, TypeError, ValueError, IndexError, KeyError) as error:
            how = (
                error.args[0]
                if isinstance(error, UnknownForm)
                else "whose attributes are not known"
            )
            raise fault(
                f"StableHLO's {short(name)} {how} cannot be imported", self.line(x)
            ) from error
        if (array := self.computed(op, given, params, results, x)) is not None:
            return [self.keep(array, results[0])]
        if op in MAPS:
            given = [self.narrow(y) for y in given]
        if op == "select_n" and (chosen := self.chosen(given)) is not None:
            return [chosen]
        if op in ("gather", "scatter", "scatter-add", "scatter-mul"):
            given = self.places(x, given)
        made = self.add(op, given, params, results, x)
        if op.startswith(("reduce", "cum")) and (
            beginning := self.beginning(x, operands[-1], results[0], made[0])
        ):
            return beginning
        return made

    def computed(
        self, op: str, given: Sequence[Any], params: Mapping[str, Any], results: Sequence[Shaped],
        x: StableHloOperation,
    ) -> Any:  # fmt: skip
        """Return the elements of a result whose operands are known; None if they are not."""
        dtype = NUMPY.get(x.types[0].dtype)
        if len(results) != 1 or dtype is None or math.prod(results[0].shape) > _LARGE:
            return None
        arrays: list[Any] = []
        for y in given:
            own = self.known.get(y.name) if isinstance(y, Ref) else np.asarray(y)
            if own is None:
                return None
            arrays.append(own)
        try:
            return evaluated(op, arrays, params, results[0].shape, np.dtype(dtype))
        except (TypeError, ValueError, IndexError, KeyError):
            return None

    def narrow(self, x: Any) -> Any:
        """Return an array whose elements are equal as one number."""
        array = self.known.get(x.name) if isinstance(x, Ref) else None
        if array is None or not array.size or (least := unrepeated(array)).size != 1:
            return x
        return _number(least.reshape(()))

    def chosen(self, operands: Sequence[Any]) -> Any:
        """Return the case that is selected everywhere; None if that is not known.

        JAX reads NaN at places that do not exist; only existing places count.
        """
        which, *cases = operands
        array = self.known.get(which.name) if isinstance(which, Ref) else np.asarray(which)
        if array is not None and array.size and (array == array.flat[0]).all():
            return cases[int(array.flat[0])]
        if len(cases) == 2 and isinstance(cases[0], float) and math.isnan(cases[0]):
            own = self.made.get(cases[1].name) if isinstance(cases[1], Ref) else None
            while own is not None and own.op in (f"{JAX}reshape", f"{JAX}transpose"):
                own = self.made.get(own.args[0].name)
            return cases[1] if own is not None and own.op == f"{JAX}gather" else None
        return None

    def places(self, x: StableHloOperation, given: Sequence[Any]) -> list[Any]:
        """Return the operands of a gather or a scatter, whose places have a last dimension."""
        [first, places, *rest] = given
        key = "dimension_numbers" if x.op.endswith("gather") else "scatter_dimension_numbers"
        vector_dim = re.search(r"index_vector_dim = (\d+)", str(x.attributes.get(key, "")))
        own = self.types([places])[0]
        at = int(vector_dim[1]) if vector_dim else 0
        rank = len(own.shape)
        if at == rank:
            [places] = self.add("reshape", [places], {}, [Shaped((*own.shape, 1), own.dtype)], x)
        elif at != rank - 1:
            raise fault(f"StableHLO's {short(x.op)} of places that are not last cannot be imported",
                        self.line(x))  # fmt: skip
        return [first, places, *rest]

    def beginning(
        self, x: StableHloOperation, start: Any, result: Shaped, made: Ref
    ) -> list[Any] | None:
        """Return a reduction whose initial value is not the neutral element."""
        kind = reduction(x)
        number = self.narrow(start)
        identities: tuple[Any, ...] = _IDENTITIES.get(kind, ())
        if not isinstance(number, Ref):
            lowest = result.dtype[0] in "iu" and kind in ("maximum", "minimum")
            if number in identities or (lowest and abs(number) >= 127):
                return None
        how = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}.get(kind, kind)
        if x.op.endswith("window") and len(x.operands) == 2 and kind != "add":
            raise fault(
                f"StableHLO's {short(x.op)} from another number cannot be imported", self.line(x)
            )
        return [*self.add(how, [made, number], {}, [result], x)]

    def constrained(self, x: Any, sharding: Any, at: StableHloOperation) -> Any:
        """Return a value that is told how to lie."""
        if not isinstance(x, Ref) or not isinstance(self.narrow(x), Ref):
            return x  # of one number there is nothing to lay out
        type = self.types([x])[0]
        axes = self.layout(sharding, len(type.shape))
        if not any(axes):
            what = "a constraint that names no axis, or leaves dimensions open, is left out"
            self.remarks.setdefault(what, self.line(at))
            return x
        return self.add("sharding_constraint", [x], {"axes": axes}, [type], at)[0]

    # --- calls and branches ---------------------------------------------------------------------

    def called(self, name: str, x: StableHloOperation, operands: list[Any]) -> Sequence[Any]:
        """Return the results of a function."""
        function = self.module.functions.get(name)
        if function is None or len(function.body.takes) != len(operands):
            raise DiagnosticError(
                Diagnostic(f"there is no function @{name} of {len(operands)}", x.at)
            )
        if name in self.calls:
            raise DiagnosticError(Diagnostic(f"function @{name} calls itself", x.at))
        results = [shaped(type, f"@{name}", x) for type in x.types]
        if (known := _named(name, function)) is not None:
            return self.function_of_jax(known, function, operands, results, x)
        self.calls.append(name)
        outer, caller = self.values, self.caller
        self.caller = x.source or self.caller
        self.values = {v.name: y for v, y in zip(function.body.takes, operands, strict=True)}
        made = self.read(function.body.operations)
        self.values, self.caller = outer, caller
        del self.calls[-1]
        if len(made) != len(x.types):
            raise DiagnosticError(Diagnostic(f"function @{name} has {len(made)} results", x.at))
        return made

    def function_of_jax(
        self,
        op: str,
        function: StableHloFunction,
        operands: list[Any],
        results: list[Shaped],
        x: StableHloOperation,
    ) -> Sequence[Any]:
        """Read a call of a function of JAX that is one operation; keys of random numbers are pairs
        of integers in the text."""
        if op not in _RANDOM.values():
            return self.add(op, operands, {}, results, x)
        sizes = shaped(function.body.takes[0].type, "a key", x).shape
        operands[:1] = self.add("random_wrap", operands[:1], {}, [Shaped(sizes[:-1], "i32")], x)
        if op in ("uniform", "randint"):
            return self.add(op, operands, {}, results, x)
        keys = Shaped(results[0].shape[:-1], "i32")
        made = self.add(op, operands, {"shape": keys.shape} if "split" in op else {}, [keys], x)
        return self.add("random_unwrap", made, {}, results, x)

    def inlined(self, region: Region, operands: Sequence[Any]) -> list[Any]:
        """Return the results of a region, which sees the values around it."""
        outer, self.values = self.values, dict(self.values)
        self.values.update(zip((v.name for v in region.takes), operands, strict=True))
        made = self.read(region.operations)
        self.values = outer
        return made

    def cases(self, x: StableHloOperation, operands: list[Any]) -> Sequence[Any]:
        """Return the results of the branch that a number selects; all branches run."""
        regions = x.regions[::-1] if short(x.op) == "if" else x.regions
        branches = [self.inlined(region, []) for region in regions]
        made: list[Any] = []
        for number, type in enumerate(x.types):
            own = [branch[number] for branch in branches]
            made += self.add("select_n", [*operands, *own], {}, [shaped(type, "a branch", x)], x)
        return made

    def best(self, x: StableHloOperation, operands: list[Any]) -> Sequence[Any]:
        """Return the largest or the least elements along a dimension, and their places."""
        results = [shaped(type, "StableHLO's reduce", x) for type in x.types]
        [dim, *more] = x.attributes.get("dimensions", [-1, -1])
        places: Any = self.known.get(operands[1].name) if isinstance(operands[1], Ref) else None
        kind = ""
        if x.regions and not more and places is not None and 0 <= dim < places.ndim:
            count: int = places.shape[dim]
            own: Any = np.arange(count)
            shape = [-1 if d == dim else 1 for d in range(places.ndim)]
            if np.array_equal(places, np.broadcast_to(own.reshape(shape), places.shape)):
                kind = self.order(x.regions[0])
        if not kind:
            what = "which finds no place of the largest or the least element, cannot be imported"
            raise fault(f"StableHLO's reduce of several arrays, {what}", self.line(x))
        axes = {"axes": [dim]}
        bound = "max" if kind == "argmax" else "min"
        value = self.add(f"reduce_{bound}", operands[:1], axes, results[:1], x)
        return [*value, *self.add(kind, operands[:1], axes, results[1:], x)]

    def order(self, region: Region) -> str:
        """Return whether a function of two elements and their places takes the larger one, or the
        lesser; of equal ones the first."""
        samples = [(2.0, 0, 1.0, 1), (1.0, 0, 2.0, 1), (1.0, 0, 1.0, 1), (1.0, 1, 1.0, 0),
                   (2.0, 1, 1.0, 0), (1.0, 1, 2.0, 0)]  # fmt: skip
        made = [self.numbers(region, sample) for sample in samples]
        for kind, sign in (("argmax", 1), ("argmin", -1)):
            wanted = [
                min(((a, i), (b, j)), key=lambda x: (-sign * x[0], x[1])) for a, i, b, j in samples
            ]
            if made == [[float(v), float(n)] for v, n in wanted]:
                return kind
        return ""

    def numbers(self, region: Region, given: Sequence[float]) -> list[float] | None:
        """Return what a region makes of numbers; None if that is not known."""
        if len(given) != len(region.takes):
            return None
        inner = self.inner()
        operands = [
            inner.keep(np.asarray(n, NUMPY.get(v.type.dtype, np.float64)), Shaped((), "f64"))
            for v, n in zip(region.takes, given, strict=True)
        ]
        try:
            made = inner.inlined(region, operands)
        except DiagnosticError:
            return None
        return None if any(isinstance(x, Ref) for x in made) else [float(x) for x in made]

    def sorted(self, x: StableHloOperation, operands: list[Any]) -> Sequence[Any]:
        """Return values in the order of the first of them."""
        results = [shaped(type, "StableHLO's sort", x) for type in x.types]
        dim, others = x.attributes.get("dimension", -1), len(operands) - 1
        params = {"dimension": dim % max(1, len(results[0].shape)), "num_keys": 1}
        samples = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0)]
        made = [self.numbers(x.regions[0], [a, b] + more * others)
                for a, b in samples for more in ([0.0, 1.0], [1.0, 0.0])]  # fmt: skip
        if made == [[1.0], [1.0], [0.0], [0.0], [0.0], [0.0]]:
            return self.add("sort", operands, params, results, x)
        if made == [[0.0], [0.0], [1.0], [1.0], [0.0], [0.0]] and results[0].dtype[0] in "fb":
            less = self.add("neg", operands[:1], {}, results[:1], x)
            first, *rest = self.add("sort", [*less, *operands[1:]], params, results, x)
            return [*self.add("neg", [first], {}, results[:1], x), *rest]
        raise fault(
            "StableHLO's sort by several keys, or by another order, cannot be imported",
            self.line(x),
        )

    # --- loops ----------------------------------------------------------------------------------

    def loop(self, x: StableHloOperation, operands: list[Any]) -> Sequence[Any]:
        """Return the results of a loop of a known length, as JAX's scan."""
        types = [shaped(v.type, "a value of a loop", x) for v in x.regions[1].takes]
        condition, body = (self.body(region, types) for region in x.regions)
        numbers = [self.narrow(y) for y in operands]
        scan = counted(condition, body, numbers, self.shapes)
        if scan is None:
            raise fault("StableHLO's while whose number of iterations depends on data cannot be "
                        "imported", self.line(x))  # fmt: skip
        starts = [Ref(self.kept(y, type)) for y, type in zip(operands, types, strict=True)]
        given = [Ref(name) if isinstance(name, str) else starts[name] for name in scan.takes]
        results = [
            Shaped((scan.times, *type.shape), type.dtype) if place >= scan.carries else type
            for place, type in enumerate(scan.types)
        ]
        params = {
            "body": scan.body, "length": scan.times, "num_consts": scan.consts,
            "num_carry": scan.carries, "reverse": scan.reverse,
        }  # fmt: skip
        made = self.add("scan", given, params, results, x) if results else []
        after: list[Any] = list(operands)
        for place, number in enumerate(scan.places):
            after[number] = made[place]
        if scan.counter is not None:
            after[scan.counter] = scan.last
        return after

    def body(self, region: Region, types: Sequence[Shaped]) -> ModelGraph:
        """Return a region of a loop as a graph, which may take values from outside."""
        inner = self.inner()
        inputs: list[ModelInput] = []
        for number, (v, type) in enumerate(zip(region.takes, types, strict=True)):
            name = inner.fresh()
            inner.values[v.name] = Ref(name)
            self.shapes[name] = type
            inputs.append(ModelInput(name, type, f"x_{number}"))
        results = inner.read(region.operations)
        own = list(types) if len(results) == len(types) else [Shaped((), "bool")]
        outputs = [inner.kept(y, type) for y, type in zip(results, own, strict=True)]
        tables = [x for x in inner.nodes if x.op == CONSTANT and form_of(x.args[0]) is None]
        self.nodes += tables
        nodes = [x for x in inner.nodes if x not in tables] if tables else inner.nodes
        return live(ModelGraph(inputs, [*nodes], outputs), inputs=inputs)


def _renamed(x: StableHloOperation, name: str) -> StableHloOperation:
    return StableHloOperation(name if "." in name else f"custom.{name}", x.results, x.operands,
        x.attributes,
                     x.types, x.regions, x.at, x.source, x.path)  # fmt: skip


def _number(array: Any) -> bool | int | float:
    """Return an array without dimensions as a number with as few digits as its dtype needs."""
    is_short = array.dtype.kind in "fV" and array.dtype.itemsize < 8
    return float(str(array[()])) if is_short else array.item()


_RANDOM = {
    ("_uniform", 3): "uniform", ("_randint", 3): "randint", ("_threefry_split", 1): "random_split",
    ("_threefry_fold_in", 2): "random_fold_in", ("threefry_fold_in", 2): "random_fold_in",
    ("_threefry_split_foldlike", 1): "random_split", ("threefry_split", 1): "random_split",
}  # fmt: skip
"""Functions of JAX for random numbers, each with the number of its operands."""


def _named(name: str, function: StableHloFunction) -> str | None:
    """Return the operation that a function of JAX stands for, by its name and its operations."""
    base = re.sub(r"_\d+$", "", name)
    steps = [short(x.op) for x in function.body.operations if not x.op.endswith("return")]
    steps = [x for x in steps if x not in ("constant", "broadcast_in_dim", "convert")]
    if base == "relu" and steps == ["maximum"] and len(function.body.takes) == 1:
        return "relu"
    if base in ("silu", "swish") and steps == ["logistic", "multiply"]:
        return "silu"
    takes = len(function.body.takes)
    if (base, takes) in _RANDOM:
        return _RANDOM[base, takes]
    return None
