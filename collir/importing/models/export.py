"""The graph of a torch module, by ``torch.export``: no data is computed, so any size will do."""

import importlib
import io
import linecache
import logging
import math
import re
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from collir.importing.models.complexes import COMPLEX, with_real_parts
from collir.importing.models.constants import constant_node, named_constants
from collir.importing.models.decompositions import DETACHED, decomposed, is_nothing, op_name
from collir.importing.models.graph import (
    ModelGraph,
    ModelInput,
    ModelNode,
    Ref,
    Shaped,
    live,
    mapped,
)
from collir.importing.models.norms import with_norms
from collir.importing.models.scans import whole_scans
from collir.importing.models.simplify import simplified
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position

DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool",
}  # fmt: skip
"""The dtypes of torch that ``.coll`` has, and their names there."""

_LARGE = 2**28
"""The most elements of a constant that is computed while a model is imported."""


_LIFTED = 2**16
"""The most elements of a constant that a model makes of numbers."""


def fault(message: str, line: str = "") -> DiagnosticError:
    """Return an error about the user's model, at a line of Python such as ``model.py:12``."""
    file, _, number = line.rpartition(":")
    position = Position(file, int(number), _indent(file, int(number))) if file else None
    return DiagnosticError(Diagnostic(message, position))


def _indent(file: str, number: int) -> int:
    """Return the column of the first character of a line."""
    line = linecache.getline(file, number)
    return len(line) - len(line.lstrip()) + 1


def exported(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelGraph:
    """Return the graph of a module for arguments, which may lie on the device ``meta``.

    Raises:
        DiagnosticError: ``torch.export`` refuses it.
    """
    torch = importlib.import_module("torch")
    try:
        with _quiet(), whole_scans():
            program = torch.export.export(module, tuple(args), kwargs=dict(kwargs), strict=False)
            program = decomposed(program)
    except Exception as error:  # whatever the user's code raises
        raise fault(*_refusal(error)) from error
    return graph_of(program)


@contextmanager
def _quiet() -> Generator[None]:
    """Keep torch from writing what it traces: the error says it."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with ExitStack() as quiet:
            quiet.enter_context(redirect_stdout(io.StringIO()))
            quiet.enter_context(redirect_stderr(io.StringIO()))
            quiet.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _refusal(error: Exception) -> tuple[str, str]:
    """Return why an export failed, and the line of the user's Python that it is about."""
    text = str(error).strip() or type(error).__name__
    files = re.findall(r'File "([^"]+)", line (\d+)', text)
    own = [(file, line) for file, line in files if "/torch/" not in file]
    if not own:
        frames = _frames(error)
        own = [frame for frame in frames if "/torch/" not in frame[0]]
    line = ":".join(own[-1]) if own else ""
    first = text.splitlines()[0]
    kind = type(error).__name__
    hint = ""
    if "DataDependent" in kind:
        hint = ": this reads a value of a tensor to decide what to do; leave it out of the model"
    return f"torch cannot export the model ({kind}): {first}{hint}", line


def _frames(error: BaseException) -> list[tuple[str, str]]:
    frames: list[tuple[str, str]] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, str(trace.tb_lineno)))
        trace = trace.tb_next
    return [frame for frame in frames if "/collir/" not in frame[0]]


def graph_of(program: Any) -> ModelGraph:
    """Return the graph of an exported program.

    Raises:
        DiagnosticError: a value has a dtype that ``.coll`` lacks, or a size that is not known.
    """
    signature = program.graph_signature
    weights = dict(signature.inputs_to_parameters)
    lifted = dict(signature.inputs_to_lifted_tensor_constants)
    buffers = dict(signature.inputs_to_buffers) | lifted
    shared = _tied(program, weights)
    inputs: list[ModelInput] = []
    nodes: list[ModelNode | Any] = []
    outputs: list[str] = []
    same: dict[str, str] = {}
    results: set[str | None] = set(signature.user_outputs)
    known = Known()
    trained: set[str] = set()  # what a gradient goes to, or through

    def ref(x: Any) -> Any:
        if type(x).__name__ != "Node":
            return _plain(x)
        name = str(x.name)
        return Ref(same.get(name, name))

    for node in program.graph.nodes:
        if node.op == "placeholder":
            of = str(weights.get(node.name) or buffers.get(node.name) or node.name)
            if node.name in shared:
                same[node.name] = shared[node.name]
            elif known.lifts(node, program.constants.get(lifted.get(node.name))):
                nodes.append(_constant(node, known.value(node)))
            elif hasattr(node.meta.get("val"), "dtype"):
                value = _shaped(node.meta["val"], of, "")
                kind = "buffer" if node.name in buffers else "argument"
                if node.name in weights:
                    kind = "weight" if program.state_dict[of].requires_grad else "buffer"
                inputs.append(ModelInput(node.name, value, of, kind))
                if kind in ("weight", "argument") and _is_float(value):
                    trained.add(node.name)
        elif node.op == "output":
            [flat] = node.args
            outputs = [
                str(same.get(x.name, x.name)) for x in flat if getattr(x, "name", "") in results
            ]
        elif (value := known.value(node)) is not None:
            nodes.append(_constant(node, value))
        else:
            made = _node(node, ref)
            is_same = is_nothing(made.op) and _keeps_dtype(node)
            if is_same or (made.op in DETACHED and not trained & {*made.operands()}):
                first = made.args[0]
                same[node.name] = first.name if isinstance(first, Ref) else node.name
            else:
                nodes.append(made)
                if made.op not in DETACHED and any(_is_float(x) for x in made.results):
                    trained.update({made.name} if trained & {*made.operands()} else ())
    graph = with_real_parts(live(ModelGraph(inputs, nodes, list(dict.fromkeys(outputs)))))
    _check_real(graph)
    return named_constants(with_norms(simplified(graph)))


def _keeps_dtype(node: Any) -> bool:
    """Return whether the result of a node has the dtype of its first operand."""
    values = (node.meta.get("val"), getattr(node.args[0], "meta", {}).get("val"))
    first, second = (getattr(x, "dtype", None) for x in values)
    return first == second


def _is_float(x: Shaped | None) -> bool:
    return x is not None and (x.dtype[0] in "fc" or x.dtype == "bf16")


def _check_real(graph: ModelGraph) -> None:
    """Check that no value is complex.

    Raises:
        DiagnosticError: one is.
    """
    for x in graph.inputs:
        if x.value.dtype in COMPLEX:
            raise fault(f"{x.of} is of {x.value.dtype}, a dtype that .coll does not have")
    known = {x.name for x in graph.inputs}
    for node in graph.nodes:
        assert isinstance(node, ModelNode)
        for result in node.results:
            if result is not None and result.dtype in COMPLEX:
                what = f"{node.op} is of {result.dtype}"
                raise fault(f"{what}, a dtype that .coll does not have", node.line)
        if not known.issuperset(node.operands()):
            raise fault(f"torch's {node.op} of complex values cannot be imported", node.line)
        known.add(node.name)
    if not known.issuperset(graph.outputs):
        raise fault("a result of the model is complex: return its parts, as view_as_real does")


class Known:
    """The values of nodes that no input reaches, computed when they are asked for.

    They are kept without repetition: a mask that is the same for all of a batch has the memory of
    one, whatever the batch is.
    """

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._torch = importlib.import_module("torch")
        aten = self._torch.ops.aten
        self._empty = ("empty", "empty_like", "new_empty", "empty_strided", "empty_permuted")
        self._maps = (aten.__and__.Tensor, aten.__or__.Tensor, aten._to_copy.default)
        self._views = (aten.expand.default, aten.unsqueeze.default, aten.slice.Tensor)

    def lifts(self, node: Any, value: Any) -> bool:
        """Take the value of a tensor that the model makes of numbers; return whether there is one.

        A tensor as large as data, or without elements in memory, stays an input.
        """
        if type(value) is not self._torch.Tensor or value.device.type != "cpu":
            return False
        if value.is_complex() or not 0 < value.numel() <= _LIFTED:
            return False
        self._values[node] = self._compact(value)
        return True

    def value(self, node: Any) -> Any:
        """Return the value of a node, or None if it depends on inputs or is too large."""
        sizes = getattr(node.meta.get("val"), "shape", None)
        tags = getattr(node.target, "tags", ())
        if node in self._values:
            return self._values[node]
        if sizes is None or self._torch.Tag.nondeterministic_seeded in tags:
            return None
        if node.meta["val"].is_complex():
            return None
        if _op(node).partition(".")[0] in self._empty or any(
            name not in self._values for name in node.all_input_nodes
        ):
            return None
        is_pointwise = self._torch.Tag.pointwise in tags or node.target in self._maps
        small = list(sizes)
        if is_pointwise:
            operands = [self._values[x].expand(sizes) for x in node.all_input_nodes]
            small = [1 if all(x.stride(d) == 0 or x.shape[d] == 1 for x in operands) else n
                     for d, n in enumerate(sizes)]  # fmt: skip
        if node.target not in self._views and math.prod(small) > _LARGE:
            return None

        def known(x: Any) -> Any:
            if type(x).__name__ != "Node":
                return x
            value = self._values[x]
            return self._cut(value.expand(sizes), small) if is_pointwise else value

        kwargs = {name: known(x) for name, x in node.kwargs.items()}
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        try:
            with self._torch.no_grad():
                made = node.target(*mapped(tuple(node.args), known), **mapped(kwargs, known))
        except Exception:  # what torch refuses here is an operation like others
            return None
        self._values[node] = self._compact(made.expand(sizes))
        return self._values[node]

    @staticmethod
    def _cut(x: Any, sizes: Sequence[int]) -> Any:
        for dim, size in enumerate(sizes):
            x = x.narrow(dim, 0, size)
        return x

    def _compact(self, x: Any) -> Any:
        """Return a tensor whose memory does not repeat along any dimension."""
        for dim, size in enumerate(x.shape):
            first = x.narrow(dim, 0, 1)
            if size > 1 and x.stride(dim) and self._torch.equal(x, first.expand(x.shape)):
                x = first.expand(x.shape)
        return x


def _constant(node: Any, value: Any) -> ModelNode:
    line = _line(node)
    result = _shaped(node.meta["val"], str(node.target), line)
    array = value.detach()
    array = array.double() if array.dtype.is_floating_point else array
    return constant_node(node.name, array.numpy(), result.dtype, _path(node.meta), line)


def _tied(program: Any, weights: Mapping[str, str]) -> dict[str, str]:
    """Return the names of placeholders that share their weights with earlier placeholders."""
    first: dict[int, str] = {}
    again: dict[str, str] = {}
    for name, path in weights.items():
        key = id(program.state_dict[path]) if path in program.state_dict else id(name)
        if key in first:
            again[name] = first[key]
        else:
            first[key] = name
    return again


def _op(node: Any) -> str:
    """Return the name of an operation, without ``aten.`` and ``.default``."""
    op = str(node.target)
    if not isinstance(node.target, str) and op.startswith("<built-in function"):
        op = op.split()[-1].rstrip(">")
    return op_name(op)


def _node(node: Any, ref: Any) -> ModelNode:
    op, path, line = _op(node), _path(node.meta), _line(node)
    value = node.meta.get("val")
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value]  # pyright: ignore
    results = tuple(_shaped(x, op, line) if hasattr(x, "dtype") else None for x in values)
    args, kwargs = mapped(tuple(node.args), ref), mapped(dict(node.kwargs), ref)
    return ModelNode(node.name, op, args, kwargs, results, path, line)


def _plain(x: Any) -> Any:
    """Return an argument as a number, a name or None."""
    if x is None or isinstance(x, bool | int | float | complex | str):
        return x
    text = str(x)
    return DTYPES.get(text.removeprefix("torch."), text)


def _shaped(value: Any, what: str, line: str) -> Shaped:
    name = str(value.dtype).removeprefix("torch.")
    if name not in DTYPES and name not in COMPLEX:
        raise fault(f"{what} is of {name}, a dtype that .coll does not have", line)
    sizes = tuple(value.shape)
    if not all(isinstance(size, int) for size in sizes):
        raise fault(f"{what} has a size that depends on data: {list(sizes)}", line)
    return Shaped(sizes, DTYPES.get(name, name))


def _path(meta: Mapping[str, Any]) -> str:
    """Return the innermost module of a node, by its path from the outermost one."""
    stack: dict[str, Any] = meta.get("nn_module_stack") or {}
    return str([*stack.values()][-1][0]) if stack else ""


def _line(node: Any) -> str:
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, number) for file, number in lines if "/torch/nn/" not in file]
    return ":".join(own[-1]) if own else ""
