"""A function of JAX as a program: its jaxpr, loops over its layers, and a training step."""

import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from collir.importing.hlo.mesh import mesh_of
from collir.importing.models.export import fault
from collir.importing.models.imported import MACHINE, MESH, Imported, headed, program_of
from collir.importing.models.jax_rows import loops, maps, shapes, sums
from collir.importing.models.jaxprs import DTYPES, ArrayLeaf, Traced, axes_of, traced
from collir.importing.models.repeats import repeated
from collir.importing.models.sizes import with_batch
from collir.importing.models.softmaxes import with_softmaxes
from collir.importing.models.training import OPTIMIZERS
from collir.ir.diagnostics import DiagnosticError

_ = loops, maps, shapes, sums  # their rows


def import_jax(
    function: Callable[..., Any],
    *args: Any,
    optimizer: str = "",
    precision: str = "",
    clip: bool = False,
    machine: str = "",
    mesh: str = "",
    comment: str = "",
) -> Imported:
    """Return a function of JAX as a program, for arguments of these shapes and dtypes.

    Arguments are pytrees of arrays, or of ``jax.ShapeDtypeStruct``; what is neither an array nor a
    number is a constant of the function. The first argument, if it has several arrays, is the
    weights of the model. Nothing is computed. The program is not checked here: ``collir.parse``
    does so, as the command does.

    Args:
        optimizer: adds a training step with an optimiser of the library; the first result of the
            function is the loss.
        precision: the dtype of the weights and of other floating-point arguments; by default their
            own.
        clip: whether the step clips gradients by the norm of all of them.
        machine: the machine, as a reference in ``.coll``; by default hosts of 8 H100.
        mesh: its axes; by default the axes of the mesh that arguments or constraints name, or else
            a single axis ``data``. The batch is divided over the first axis, if no argument says
            how it lies.

    Raises:
        DiagnosticError: JAX cannot trace the function, an operation cannot be imported, or the loss
            is no number.
    """
    if optimizer and optimizer not in OPTIMIZERS:
        raise fault(f"there is no optimizer {optimizer}: {', '.join(OPTIMIZERS)}")
    given = JaxArguments(function, args, precision)
    trace = traced_function(function, given)
    known = next((x for x in (*given.meshes, *trace.meshes)), None)
    machine, mesh = _placed(known, machine, mesh)
    is_free = known is None and not any(any(leaf.axes) for leaf in given.leaves)
    axis = mesh.partition("=")[0].strip() if is_free else ""
    written, constants, text = program_of(trace.graph, optimizer, clip, axis, repeated)
    batch, sized = given.batch, None
    if batch is not None:
        try:
            doubled = traced_function(function, given.doubled())
            more = program_of(doubled.graph, optimizer, clip, axis, repeated)[-1]
            sized = with_batch(text, more, batch)
        except DiagnosticError:  # the function is for this size alone
            pass
    batch = batch if sized else None
    text = headed(sized or text, written, batch, machine, mesh, comment)
    remarks = tuple(f"{line}: {what}" if line else what for what, line in trace.remarks.items())
    return Imported(text, written.arguments, constants, batch, False, remarks)


def traced_function(function: Callable[..., Any], given: "JaxArguments") -> Traced:
    """Return a function as a graph, for arguments.

    Raises:
        DiagnosticError: JAX cannot trace it, or a value has a dtype that ``.coll`` lacks.
    """
    jax: Any = importlib.import_module("jax")
    try:
        closed = jax.make_jaxpr(given.calling(function))(*given.arrays)
    except Exception as error:  # whatever the user's code raises
        raise fault(*_refusal(error)) from error
    trace = traced(closed, given.leaves)
    return replace(trace, graph=with_softmaxes(trace.graph))


def _placed(known: Any, machine: str, mesh: str) -> tuple[str, str]:
    """Return the machine and the axes of a program.

    Args:
        known: the mesh of JAX, if there is one.
    """
    if mesh or known is None:
        return machine or MACHINE, mesh or MESH
    sizes = {str(name): int(size) for name, size in dict(known.shape).items()}
    count = math.prod(sizes.values())
    if machine or count % 8:
        raise fault(
            f"the mesh of the function has {count} devices: name a machine and how its axes lie on "
            f"its levels, as in --machine '{MACHINE}' --mesh '{MESH}'"
        )
    levels = [("node", count // 8), ("gpu", 8)]
    pieces = mesh_of((), count, sizes, levels)
    return MACHINE.replace("1)", f"{count // 8})"), pieces.text


def _refusal(error: Exception) -> tuple[str, str]:
    """Return why a function cannot be traced, and the line of the user's Python."""
    trace, own = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not any(part in file for part in ("/jax/", "/collir/", "/site-packages/")):
            own = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"JAX cannot trace the function ({type(error).__name__}): {first}", own


class JaxArguments:
    """The arguments of a function: its arrays, and other values.

    Attributes:
        arrays: the types of the arrays, in order.
        leaves: what they are called, and how they lie.
        meshes: the meshes that they lie on.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], precision: str = ""):
        self._jax: Any = importlib.import_module("jax")
        flat, self._tree = self._jax.tree_util.tree_flatten_with_path(tuple(args))
        self._flat: list[Any] = [x for _, x in flat]
        self._is_array = [_is_array(x) for x in self._flat]
        counts = [sum(self._is_array[n] for n, (path, _) in enumerate(flat) if path[0].idx == k)
                  for k in range(len(args))]  # fmt: skip
        parameters = _parameters(function, len(args))
        self.arrays: list[Any] = []
        self.leaves: list[ArrayLeaf] = []
        self.meshes: list[Any] = []
        for (path, x), is_array in zip(flat, self._is_array, strict=True):
            if is_array:
                first = path[0].idx
                is_weight = first == 0 and counts[0] > 1 and _is_float(x)
                names = [parameters[first]] * (not is_weight) + [_key(key) for key in path[1:]]
                axes = axes_of(getattr(x, "sharding", None), len(getattr(x, "shape", ())))
                if any(axes):
                    self.meshes.append(x.sharding.mesh)
                kind = "weight" if is_weight else "argument"
                self.leaves.append(ArrayLeaf(".".join(names), kind, axes if any(axes) else ()))
                self.arrays.append(self._typed(x, precision))
        self._divide_no_others()

    def _divide_no_others(self) -> None:
        """Let arguments without the first size of the first one, which is a batch, be whole."""
        first: int | None = None
        for n, (leaf, x) in enumerate(zip(self.leaves, self.arrays, strict=True)):
            if leaf.kind == "weight" or leaf.axes:
                continue
            size = None if _is_key(x) or not x.shape else int(x.shape[0])
            first = size if first is None else first
            if size is None or size != first:
                self.leaves[n] = replace(leaf, axes=("",) * len(x.shape))

    def _typed(self, x: Any, precision: str) -> Any:
        dtype = getattr(x, "dtype", None)
        dtype = self._jax.numpy.asarray(x).dtype if dtype is None else dtype
        if precision and _is_float(x):
            [dtype] = [name for name, short in DTYPES.items() if short == precision]
        return self._jax.ShapeDtypeStruct(getattr(x, "shape", ()), dtype)

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the arrays alone."""

        def called(*arrays: Any) -> Any:
            left = iter(arrays)
            flat = [next(left) if is_array else x
                    for x, is_array in zip(self._flat, self._is_array, strict=True)]  # fmt: skip
            results = function(*self._jax.tree_util.tree_unflatten(self._tree, flat))
            return [x for x in self._jax.tree_util.tree_leaves(results) if _is_array(x)]

        return called

    @property
    def batch(self) -> int | None:
        """The first size that all arguments with dimensions have, but for weights."""
        sizes = {x.shape[0] for x, leaf in zip(self.arrays, self.leaves, strict=True)
                 if _has_batch(leaf, x)}  # fmt: skip
        return sizes.pop() if len(sizes) == 1 else None

    def doubled(self) -> "JaxArguments":
        """Return arguments with twice the batch."""
        made = object.__new__(JaxArguments)
        made.__dict__.update(self.__dict__)
        struct = self._jax.ShapeDtypeStruct
        made.arrays = [
            struct((2 * x.shape[0], *x.shape[1:]), x.dtype)
            if _has_batch(leaf, x) else x
            for x, leaf in zip(self.arrays, self.leaves, strict=True)
        ]  # fmt: skip
        return made


def _parameters(function: Callable[..., Any], count: int) -> list[str]:
    """Return what a function calls its first arguments."""
    try:
        names = [
            name for name, x in inspect.signature(function).parameters.items()
            if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)
        ]  # fmt: skip
    except (TypeError, ValueError):
        names = []
    return [names[n] if n < len(names) else f"x_{n}" for n in range(count)]


def _is_array(x: Any) -> bool:
    return (hasattr(x, "shape") and hasattr(x, "dtype")) or type(x) in (int, float)


def _has_batch(leaf: ArrayLeaf, x: Any) -> bool:
    """Return whether the first size of an argument may be that of the batch."""
    return leaf.kind != "weight" and bool(x.shape) and (not leaf.axes or any(leaf.axes))


def _is_key(x: Any) -> bool:
    """Return whether an array is a key of random numbers, as ``jax.random.PRNGKey`` gives it."""
    is_pair = tuple(getattr(x, "shape", ()))[-1:] == (2,)
    return is_pair and str(getattr(x, "dtype", "")) == "uint32"


def _is_float(x: Any) -> bool:
    name = str(getattr(x, "dtype", type(x).__name__))
    return "float" in name


def _key(key: Any) -> str:
    """Return the name of a step on the way to an array of a pytree."""
    for name in ("key", "name", "idx"):
        if (value := getattr(key, name, None)) is not None:
            return str(value)
    return str(key).strip(".[]'\"")
