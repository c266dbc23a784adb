"""The training step that is swept: its names, and the small programs of its kinds."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.ir.auto import is_auto
from collir.ir.calls import calls_in, given
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.parameters import parameters_of
from collir.ir.roles import Role, argument_roles
from collir.layout import DistType
from collir.layout.dtypes import DType
from collir.layout.formulas import Formula
from collir.layout.nn import EINSUM, SOFTMAX
from collir.layout.sizes import formula_of
from collir.machine import Level, Machine
from collir.synthesis.sweeping.configuration import REPLICA, Configuration
from collir.synthesis.sweeping.estimates import ProgramKind
from collir.synthesis.sweeping.ingredients import AXIS, MICROBATCHES, STAGES
from collir.synthesis.sweeping.programs import named
from collir.synthesis.sweeping.sequences import sequences
from collir.synthesis.sweeping.space import ConfigurationSpace
from collir.transforms.microbatches.splitting import batch_of


@dataclass(frozen=True)
class TrainingStep:
    """A training step in a module.

    Attributes:
        function: its name.
        batch, layers: the parameters for the size of the batch and the number of layers.
        data: the axes of the batch, that of copies last; ZeRO divides over the first one.
        pipeline: the axis of stages.
    """

    module: ModuleOp
    function: str
    batch: str
    layers: str
    data: tuple[str, ...]
    pipeline: str

    @staticmethod
    def of(module: ModuleOp, name: str, pipeline: str) -> "TrainingStep":
        """Return the training step of a module.

        Args:
            name: the name of its function; empty: the one that takes a gradient.

        Raises:
            DiagnosticError: there is none, or several; its batch, layers or axes are not known.
        """
        function = _step(module, name)
        if not is_auto(function):
            raise DiagnosticError.at(
                function,
                f"@{function.sym_name.data} is not auto: a sweep needs a function whose types say "
                "what the axes divide, and whose other layouts and collectives follow from them",
            )
        [call] = [call for call in calls_in(function) if call.sought]
        batched = batch_of(call)
        operand = dist_type(given(call, batched.first))
        batch = _parameter(operand.dims[0].size)
        mesh = mesh_of(function)
        axes = [
            axis for axis, subs in mesh.of_axis.items() if set(subs) & set(operand.dims[0].axes)
        ]
        order = [mesh.by_name[sub].axis for sub in operand.dims[0].axes]
        axes.sort(key=lambda axis: (axis == REPLICA, order.index(axis)))
        if not axes:
            raise DiagnosticError.at(
                function, "no axis shards the batch: write %x: f32[batch@data, ...]"
            )
        for axis in mesh.axes:
            if axis.size == 1:
                raise DiagnosticError.at(
                    function,
                    f"axis '{axis.name}' has size 1, so no type names it: give it another size, "
                    "which the sweep replaces",
                )
        if pipeline in axes:
            raise DiagnosticError.at(function, f"'{pipeline}' is an axis of the batch")
        name, data = function.sym_name.data, tuple(axes)
        return TrainingStep(module, name, batch, _layers(call), data, pipeline)

    @cached_property
    def parameters(self) -> dict[str, int]:
        """The values of its parameters."""
        values = parameters_of(named(self.module, self.function))
        return {name: int(value) for name, value in values.items()}

    @property
    def words(self) -> int | None:
        """The words of a row of the batch; None if rows have no words.

        This is the parameter ``seq``, or the second dimension of an argument of integers.
        """
        if "seq" in self.parameters:
            return self.parameters["seq"]
        return next((int(x.dims[1].size) for _, x in self._of_words()), None)

    @property
    def sequences(self) -> list[int]:
        """The numbers of the arguments that have a number for each word of the batch."""
        return [number for number, _ in self._of_words()]

    def _of_words(self) -> Iterator[tuple[int, DistType]]:
        for number, argument in enumerate(named(self.module, self.function).args):
            x = dist_type(argument)
            is_batch = len(x.dims) == 2 and _parameter(x.dims[0].size) == self.batch
            if is_batch and not x.dtype.is_float:
                yield number, x

    @cached_property
    def context(self) -> tuple[str, ...]:
        """The axes that divide the words of a sequence."""
        mesh = mesh_of(named(self.module, self.function))
        divided = [mesh.by_name[sub].axis for _, x in self._of_words() for sub in x.dims[1].axes]
        return tuple(x for x in dict.fromkeys(divided) if x not in self.data)

    @cached_property
    def divided(self) -> dict[tuple[str, ...], set[int]]:
        """The sizes of dimensions of arguments, by the axes that divide them, without the axes of
        the batch."""
        function = named(self.module, self.function)
        mesh = mesh_of(function)
        sizes: dict[tuple[str, ...], set[int]] = {}
        for dim in (dim for x in function.args for dim in dist_type(x).dims if dim.axes):
            axes = tuple(dict.fromkeys(mesh.by_name[sub].axis for sub in dim.axes))
            if not {*axes} & {*self.data}:
                sizes.setdefault(axes, set()).add(int(dim.size))
        return sizes

    @property
    def shards(self) -> tuple[str, ...]:
        """The axes over which ZeRO divides, which are the axes along which gradients are added
        up."""
        return (self.data[0], *self.context)

    @cached_property
    def tensor(self) -> tuple[str, ...]:
        """The axes that divide weights, and not the batch."""
        function = named(self.module, self.function)
        mesh, roles = mesh_of(function), argument_roles(function)
        types = [
            dist_type(x)
            for x, role in zip(function.args, roles, strict=True)
            if role is Role.PARAMETER
        ]
        divided = {mesh.by_name[sub].axis for x in types for sub in x.axes}
        return tuple(x for x in self.axes if x in divided and x not in (*self.data, self.pipeline))

    @cached_property
    def divided_words(self) -> int:
        """The words of a sequence that goes from layer to layer; 0 if there is none."""
        return (self.words or 0) if sequences(self.gradient) else 0

    @property
    def narrow(self) -> DType | None:
        """The narrow element type in which the model computes; None if it has none."""
        dtypes = {dist_type(x).dtype for x in self.callee.args}
        return next((dtype for dtype in (DType.BF16, DType.F16) if dtype in dtypes), None)

    @property
    def gradient(self) -> CallOp:
        """The call that takes a gradient."""
        [call] = [each for each in calls_in(named(self.module, self.function)) if each.sought]
        return call

    @property
    def callee(self) -> FuncOp:
        """The function that it takes the gradient of."""
        callee = self.gradient.function()
        assert callee is not None
        return callee

    @cached_property
    def called(self) -> dict[str, bool]:
        """The functions that layers call, each with whether it is attention.

        Functions of one kernel are left out. Attention has a softmax between products.
        """
        loops = [op for op in self.callee.walk() if isinstance(op, RepeatOp) and op.sliced]
        calls = [op for loop in loops for op in loop.walk() if isinstance(op, CallOp)]
        functions = [call.function() for call in calls if call.fused is None]
        return {f.sym_name.data: _is_attention(f) for f in functions if f is not None}

    @cached_property
    def machine(self) -> Machine:
        """The machine of its mesh."""
        return mesh_of(named(self.module, self.function)).machine

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, that of stages first."""
        mesh = mesh_of(named(self.module, self.function))
        others = (axis.name for axis in mesh.axes if axis.name != self.pipeline)
        return (self.pipeline, *others)

    def space(self, machine: Machine, devices: tuple[int, ...]) -> ConfigurationSpace:
        """Return all its configurations on these numbers of devices of a machine."""
        return ConfigurationSpace(
            machine,
            self.axes,
            self.data,
            self.shards,
            self.pipeline,
            devices,
            self.parameters[self.batch],
            self.parameters[self.layers],
            words=self.divided_words,
            tensor=self.tensor,
            divided=self.divided,
        )

    def small(self, machine: Machine, kind: ProgramKind) -> tuple[Machine, Configuration]:
        """Return a small configuration of a kind, on a machine with a level for each axis.

        There is an axis for stages, which the program is to be cut into.
        """
        links = machine.levels[-1]
        names = self.axes
        sizes = {name: AXIS if name in kind.wide else 1 for name in names}
        sizes |= {self.data[0]: AXIS, self.pipeline: STAGES}
        levels = tuple(Level(name, sizes[name], links.port, links.latency) for name in names)
        axes = tuple(
            (name, tuple(sizes[name] if name == other else 1 for other in names)) for name in names
        )
        batch, times = 4 * MICROBATCHES * AXIS, 1 if kind.once else MICROBATCHES
        configuration = Configuration(
            axes,
            self.pipeline,
            batch,
            times,
            recompute=kind.recompute,
            zero=kind.zero,
            sequence=tuple(x for x in kind.wide if x in self.tensor) if kind.sequence else (),
        )
        return Machine("small", levels, machine.device), configuration


def _step(module: ModuleOp, name: str) -> FuncOp:
    steps = {
        function.sym_name.data: function
        for function in functions_of(module)
        if any(call.sought for call in calls_in(function))
    }
    if name:
        if name not in steps:
            listed = f": there is {', '.join(f'@{each}' for each in steps)}" if steps else ""
            raise DiagnosticError(Diagnostic(f"no function @{name} takes a gradient{listed}"))
        return steps[name]
    if len(steps) != 1:
        listed = f" ({', '.join(f'@{each}' for each in steps)}): say --function" if steps else ""
        many = "several functions take" if steps else "no function takes"
        raise DiagnosticError(Diagnostic(f"{many} a gradient{listed}"))
    return next(iter(steps.values()))


def _parameter(size: int) -> str:
    """Return the parameter that gives a size."""
    return next(iter(formula_of(size).parameters), "")


def _layers(call: CallOp) -> str:
    """Return the parameter of the step for the number of its layers: that of the longest loop over
    stacked weights, as a few layers of another kind may be in front.

    Raises:
        DiagnosticError: there is no such loop.
    """
    callee = call.function()
    assert callee is not None
    arguments: list[SSAValue] = [*callee.args]
    counts: dict[str, int] = {}
    for op in callee.walk():
        if not isinstance(op, RepeatOp):
            continue
        for value in op.sliced:
            if value not in arguments:
                continue
            size = dist_type(given(call, arguments.index(value))).dims[0].size
            formula = formula_of(size)
            if not formula.parameters:
                continue
            [name, *_] = formula.parameters
            if formula != Formula.parameter(name):
                raise DiagnosticError.at(
                    op,
                    f"there are {formula} layers in this loop: make their number a "
                    "parameter of its own, which the sweep changes",
                )
            counts.setdefault(name, int(size))
    if not counts:
        raise DiagnosticError.at(
            callee, f"@{callee.sym_name.data} has no layers: a repeat over stacked weights"
        )
    return max(counts, key=counts.__getitem__)


def _is_attention(function: FuncOp) -> bool:
    """Return whether a function has a softmax between products, unlike that of experts."""
    kinds = [op.kind for op in function.walk() if isinstance(op, DistOp)]
    kinds = [kind for kind in kinds if kind in (EINSUM, SOFTMAX)]
    return SOFTMAX in kinds and kinds[0] is kinds[-1] is EINSUM
