"""The graph of a JAX function, by ``jax.make_jaxpr``: no data is computed, so any size will do."""

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from collir.importing.models.by_hand import Laid, whole_of
from collir.importing.models.constants import constant_node, named_constants
from collir.importing.models.export import fault
from collir.importing.models.graph import ModelGraph, ModelInput, ModelNode, Ref, Shaped, live
from collir.importing.models.jax_rows.named import named
from collir.importing.models.rows.table import JAX

DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool",
}  # fmt: skip
"""The dtypes of JAX that ``.coll`` has, and their names there."""

_UNKNOWN = frozenset({"cond", "while", "shard_map", "iota", "pure_callback", "io_callback"})
"""Operations that are not computed while a function is imported."""

_LARGE = 2**26
"""The most elements of a constant that is computed while a function is imported."""

_UNSIGNED = ("uint16", "uint32", "uint64")

_CALLS = {
    "jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr", "custom_lin": "", "run_state": "",
}  # fmt: skip
"""Operations that call a jaxpr, and the parameter that has it."""

_SAME = frozenset({
    "copy", "copy_p", "device_put", "optimization_barrier", "mesh_cast", "pvary",
    "layout_constraint", "reduce_precision", "name",
})  # fmt: skip
"""Operations whose results are their operands."""

_SUMS = {"psum": "reduce_sum", "pmax": "reduce_max", "pmin": "reduce_min"}
"""Reductions over axes that are dimensions, in the body of a ``shard_map``."""

_BODIES = ("scan", "checkpoint", "remat", "remat2")
"""Operations that run a jaxpr in a loop, or again for its gradient."""


@dataclass
class Traced:
    """A jaxpr as a graph.

    Attributes:
        remarks: what is not as in JAX, each with the line of the user's Python.
        meshes: the meshes of constraints.
    """

    graph: ModelGraph
    remarks: dict[str, str] = field(default_factory=dict[str, str])
    meshes: list[Any] = field(default_factory=list[Any])


@dataclass(frozen=True)
class ArrayLeaf:
    """An array among the arguments of a function.

    Attributes:
        path: the names on the way to it, such as ``params.blocks.up``.
        kind, axes: those of an input of a graph.
    """

    path: str
    kind: str
    axes: tuple[str, ...] = ()


def traced(closed: Any, leaves: Sequence[ArrayLeaf]) -> Traced:
    """Return a closed jaxpr as a graph.

    Raises:
        DiagnosticError: an operation has no row, or a value has a dtype that ``.coll`` lacks.
    """
    reader = _Reader()
    inputs: list[ModelInput] = []
    for var, leaf in zip(closed.jaxpr.invars, leaves, strict=True):
        value = shaped(var.aval, leaf.path, "")
        inputs.append(ModelInput(reader.name(var), value, leaf.path, leaf.kind, leaf.axes))
    reader.constants(closed)
    reader.read(closed.jaxpr)
    outputs = [reader.result(x) for x in closed.jaxpr.outvars]
    graph = live(ModelGraph(inputs, [*reader.nodes], outputs))
    return Traced(named_constants(graph), reader.remarks, reader.meshes)


def axes_of(sharding: Any, rank: int) -> tuple[str, ...]:
    """Return the text behind the size of each dimension of a sharded array, ``@data``; empty if a
    sharding names no axes."""
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return ()
    made: list[str] = []
    for names in (*spec, *[None] * (rank - len(spec))):
        given: Any = () if names is None else names
        listed = [given] if isinstance(given, str) else [*map(str, given)]
        text = ", ".join(listed)
        made.append("" if not text else f"@({text})" if len(listed) > 1 else f"@{text}")
    return tuple(made)


def shaped(aval: Any, what: str, line: str) -> Shaped:
    """Return the type of a value of JAX.

    Raises:
        DiagnosticError: it has a dtype that ``.coll`` lacks, or a size that is not known.
    """
    name = str(getattr(aval, "dtype", aval))
    if not all(isinstance(size, int) for size in getattr(aval, "shape", ())):
        raise fault(f"{what} has a size that depends on data: {list(aval.shape)}", line)
    shape = tuple(aval.shape)
    if name.startswith("key<") or (name == "uint32" and shape[-1:] == (2,)):
        return Shaped(shape, "i32")
    if name not in DTYPES:
        raise fault(f"{what} is of {name}, a dtype that .coll does not have", line)
    return Shaped(shape, DTYPES[name])


class _Reader:
    """Reads jaxprs into nodes; calls become their bodies."""

    def __init__(self) -> None:
        self.nodes: list[ModelNode] = []
        self.remarks: dict[str, str] = {}
        self.meshes: list[Any] = []
        self._names: dict[Any, Any] = {}
        self._known: dict[str, Any] = {}
        self._count = 0
        self._outer, self._is_library = "", False
        self._literal: type = importlib.import_module("jax.extend.core").Literal

    def _fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def name(self, var: Any) -> str:
        """Return a new name for a variable."""
        made = self._fresh()
        self._names[var] = Ref(made)
        return made

    def constants(self, closed: Any) -> None:
        """Take the arrays that a function closes over."""
        for var, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            self._names[var] = self._constant(value, var.aval)

    def _constant(self, value: Any, aval: Any) -> Ref:
        made = Ref(self._fresh())
        self._known[made.name] = np.asarray(value)
        self._keep(made.name, aval)
        return made

    def _keep(self, name: str, aval: Any) -> None:
        """Add the node of a known value; unused ones are left out later."""
        result, array = shaped(aval, "a constant", ""), self._known[name]
        if array.dtype.kind not in "fiub" or array.dtype.itemsize < 4:
            array = array if array.dtype.kind in "iub" else array.astype(np.float64)
        self.nodes.append(constant_node(name, array, result.dtype, "", ""))

    def value(self, x: Any) -> Any:
        """Return what an operand is: a value, or a number."""
        if not isinstance(x, self._literal):
            made = self._names[x]
            known = self._known.get(made.name) if isinstance(made, Ref) else None
            return made if known is None or known.shape else _number(known)
        number: Any = x.val  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        array = np.asarray(number)
        if array.shape != ():
            return self._constant(array, x.aval)  # pyright: ignore
        return _number(array)

    def result(self, x: Any) -> str:
        """Return the name of a result, which is a value."""
        made = self.value(x)
        return made.name if isinstance(made, Ref) else self._constant(made, x.aval).name

    def read(self, jaxpr: Any, path: str = "") -> None:
        """Read the equations of a jaxpr, whose variables are known."""
        for eqn in jaxpr.eqns:
            self._read(eqn, path)

    def _read(self, eqn: Any, path: str) -> None:
        op, params = eqn.primitive.name, eqn.params
        line = self._outer if self._is_library else _line(eqn) or self._outer
        own = str(eqn.source_info.name_stack)
        path = ".".join(x for x in (path, own.replace("/", ".")) if x)
        if op in _SUMS and all(not isinstance(axis, str) for axis in params["axes"]):
            op, params = _SUMS[op], {"axes": tuple(map(int, params["axes"]))}
        operands = [self.value(x) for x in eqn.invars]
        if op == "concatenate":
            operands = [x for x, v in zip(operands, eqn.invars, strict=True) if v.aval.size]
        if len(operands) == 1 and op == "concatenate":
            self._bind(eqn.outvars, operands)
        elif all(getattr(x.aval, "size", 1) == 0 for x in eqn.outvars):
            for var in eqn.outvars:
                self._names[var] = self._constant(np.zeros(var.aval.shape), var.aval)
        elif (values := self._evaluated(eqn, operands)) is not None:
            for var, value in zip(eqn.outvars, values, strict=True):
                self._names[var] = self._constant(value, var.aval)
        elif op == "select_n" and (case := self._case(operands[0])) is not None:
            self._bind(eqn.outvars, [operands[1 + case]])
        elif op in ("sharding_constraint", "reshard"):
            self._constrained(eqn, operands, path, line)
        elif op == "shard_map":
            whole = self._whole(eqn, line)
            self._bind(eqn.outvars, self._inlined(whole, operands, path, line))
        elif op in _SAME:
            self._bind(eqn.outvars, operands)
        elif (known := named(op, params)) is not None:
            self._add(known[0], operands, known[1], eqn, path, line)
        elif (key := _CALLS.get(op)) and key in params:
            if op.startswith("custom_vjp"):
                what = f"the gradient of {_called(params)} is that of its forward function"
                self.remarks.setdefault(what, line)
            self._bind(eqn.outvars, self._inlined(params[key], operands, path, line))
        elif op in _BODIES:
            body = self._body(params["jaxpr"], path)
            if params.get("policy") is not None:
                what = "checkpoint keeps nothing but its operands; a policy of JAX keeps more"
                self.remarks.setdefault(what, line)
            self._add(op, operands, {**_plain(params), "body": body}, eqn, path, line)
        elif op == "cond":
            bodies = [self._inlined(x, operands[1:], path, line) for x in params["branches"]]
            for number, var in enumerate(eqn.outvars):
                cases = [own[number] for own in bodies]
                self._add("select_n", [operands[0], *cases], {}, eqn, path, line, [var])
        else:
            self._add(op, operands, _plain(params), eqn, path, line)

    @staticmethod
    def _whole(eqn: Any, line: str) -> Any:
        """Return what a ``shard_map`` computes on whole arrays.

        Raises:
            DiagnosticError: JAX cannot map it over the axes of its mesh.
        """
        try:
            return whole_of(eqn.params, [x.aval for x in eqn.invars])
        except Exception as error:  # whatever JAX raises
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise fault(
                f"this shard_map is not one function of whole arrays: {first}", line
            ) from error

    def _constrained(self, eqn: Any, operands: Sequence[Any], path: str, line: str) -> None:
        """Add a value that is told how to lie."""
        params = eqn.params
        sharding = params.get("sharding") or params.get("dst_sharding")
        axes = axes_of(sharding, len(eqn.outvars[0].aval.shape))
        if axes and any(axes):
            self.meshes.append(sharding.mesh)
            self._add("sharding_constraint", operands, {"axes": axes}, eqn, path, line)
            return
        if not isinstance(sharding, Laid):
            what = "a constraint that names no axis is left out"
            self.remarks.setdefault(what, line)
        self._bind(eqn.outvars, operands)

    def _case(self, which: Any) -> int | None:
        """Return the case that a known number or truth value selects everywhere."""
        array = self._known.get(which.name) if isinstance(which, Ref) else np.asarray(which)
        if array is None or array.size == 0 or array.min() != array.max():
            return None
        return int(array.flat[0])

    def _evaluated(self, eqn: Any, operands: Sequence[Any]) -> list[Any] | None:
        """Return the results of an operation whose operands are known; None if they are not, or if
        its results are large."""
        op, results = eqn.primitive.name, [x.aval for x in eqn.outvars]
        if op in _CALLS or op in _BODIES or op in _UNKNOWN or any(
            str(getattr(x, "dtype", "")) not in DTYPES or math.prod(x.shape) > _LARGE
            for x in results
        ):  # fmt: skip
            return None
        if any(isinstance(x, Ref) and x.name not in self._known for x in operands):
            return None
        given = [self._known[x.name] if isinstance(x, Ref) else np.asarray(x, v.aval.dtype)
                 for x, v in zip(operands, eqn.invars, strict=True)]  # fmt: skip
        if op == "broadcast_in_dim":
            [result], [array, *_] = results, given
            places = eqn.params["broadcast_dimensions"]
            shape = [1] * len(result.shape)
            for place, size in zip(places, array.shape, strict=True):
                shape[place] = size
            return [np.broadcast_to(array.reshape(shape), result.shape)]
        jax = importlib.import_module("jax")
        with (
            jax.ensure_compile_time_eval(),
            jax.default_device(jax.local_devices(backend="cpu")[0]),
        ):
            made = eqn.primitive.bind(*map(jax.numpy.asarray, given), **eqn.params)
        listed: list[Any] = made if eqn.primitive.multiple_results else [made]
        return [np.asarray(x) for x in listed]

    def _inlined(self, called: Any, operands: Sequence[Any], path: str, line: str) -> list[Any]:
        """Return the results of a jaxpr for operands.

        Args:
            line: that of its call, for all of a function of JAX itself.
        """
        jaxpr = getattr(called, "jaxpr", called)
        before = self._outer, self._is_library
        self._outer = line
        self._is_library = self._is_library or "/jax/" in _source(jaxpr)
        outer, self._names = self._names, dict(self._names)
        if hasattr(called, "consts"):
            self.constants(called)
        self._names.update(zip(jaxpr.invars, operands, strict=True))
        self.read(jaxpr, path)
        results = [self.value(x) for x in jaxpr.outvars]
        self._names = outer
        self._outer, self._is_library = before
        return results

    def _body(self, called: Any, path: str) -> ModelGraph:
        """Return a jaxpr as a graph of its own."""
        jaxpr = getattr(called, "jaxpr", called)
        inner = _Reader()
        inner._count, inner.remarks, inner.meshes = self._count, self.remarks, self.meshes
        inner._outer, inner._is_library = self._outer, self._is_library
        inputs = [
            ModelInput(inner.name(x), shaped(x.aval, "an operand", ""), f"x_{n}")
            for n, x in enumerate(jaxpr.invars)
        ]
        if hasattr(called, "consts"):
            inner.constants(called)
        inner.read(jaxpr, path)
        outputs = [inner.result(x) for x in jaxpr.outvars]
        self._count = inner._count
        return ModelGraph(inputs, [*_live(inner.nodes, outputs)], outputs)

    def _bind(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        self._names.update(zip(variables, values, strict=True))

    def _add(
        self,
        op: str,
        operands: Sequence[Any],
        params: Mapping[str, Any],
        eqn: Any,
        path: str,
        line: str,
        variables: Sequence[Any] | None = None,
    ) -> None:
        made: list[Any] = [*(eqn.outvars if variables is None else variables)]
        results = tuple(self._shaped(x, op, line) for x in made)
        node = ModelNode(self._fresh(), JAX + op, tuple(operands), params, results, path, line)
        self.nodes.append(node)
        if len(made) == 1:
            self._names[made[0]] = Ref(node.name)
            return
        for number, (var, result) in enumerate(zip(made, results, strict=True)):
            args = (Ref(node.name), number)
            part = ModelNode(self._fresh(), "getitem", args, {}, (result,), path, line)
            self.nodes.append(part)
            self._names[var] = Ref(part.name)

    @staticmethod
    def _shaped(x: Any, op: str, line: str) -> Shaped | None:
        dtype, shape = str(getattr(x.aval, "dtype", "")), tuple(getattr(x.aval, "shape", ()))
        is_key = dtype == "uint32" and shape[-1:] == (2,)
        if dtype in _UNSIGNED and not is_key:
            return Shaped(shape, "u32")  # no row takes it, but those of keys
        return shaped(x.aval, f"JAX's {op}", line)


def _live(nodes: Sequence[ModelNode], outputs: Sequence[str]) -> Iterator[ModelNode]:
    """Yield the nodes that results need."""
    needed, kept = set(outputs), list[ModelNode]()
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.operands())
            kept.append(node)
    yield from reversed(kept)


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an operation that rows read."""
    return {name: _value(x) for name, x in params.items() if not _is_jaxpr(x)}


def _value(x: Any) -> Any:
    """Return a parameter as a number, a name, or a list of these."""
    fields: Any = getattr(x, "_asdict", None)
    if fields is not None:
        return SimpleNamespace(**fields())
    module = type(x).__module__
    if module.startswith(("numpy", "jax", "ml_dtypes")) and hasattr(x, "dtype"):
        return np.asarray(x).item() if np.ndim(x) == 0 else x
    return DTYPES.get(str(getattr(x, "name", x)), x) if module.startswith("numpy") else x


def _number(array: Any) -> bool | int | float:
    """Return an array without dimensions as a number with as few digits as its dtype needs."""
    is_short = array.dtype.kind == "f" and array.dtype.itemsize < 8
    return float(str(array[()])) if is_short else array.item()


def _is_jaxpr(x: Any) -> bool:
    return type(x).__name__ in ("ClosedJaxpr", "Jaxpr")


def _called(params: Mapping[str, Any]) -> str:
    jaxpr = params.get("call_jaxpr") or params.get("fun_jaxpr")
    return _source(getattr(jaxpr, "jaxpr", jaxpr)).partition(" ")[0] or "a function with a rule"


def _source(jaxpr: Any) -> str:
    """Return the name of the function that a jaxpr is of, and where it stands."""
    return str(getattr(getattr(jaxpr, "debug_info", None), "func_src_info", "") or "")


def _line(eqn: Any) -> str:
    """Return the line of the user's Python that an equation comes from."""
    util: Any = importlib.import_module("jax._src.source_info_util")
    find: Callable[[Any], Any] = util.user_frame
    for given in (eqn.source_info, getattr(eqn.source_info, "traceback", None)):
        try:
            frame = find(given)
        except Exception:  # it takes the other one in other versions of jax
            continue
        if frame is not None:
            return f"{frame.file_name}:{frame.start_line}"
    return ""
