"""The layouts of a function: chosen so that they fit into memory, and written."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.cost.model import CostModel
from collir.cost.programs.simulate import simulate_function
from collir.dialects.machine import mesh_of
from collir.ir.auto import AUTO
from collir.ir.diagnostics import DiagnosticError
from collir.ir.remarks import listening, remark
from collir.layout import Mesh
from collir.syntax.parsing import no_gc
from collir.syntax.units import bytes_text
from collir.synthesis.propagation.accumulate import reduce_behind_loops
from collir.synthesis.propagation.choice import LayoutChoice
from collir.synthesis.propagation.graph import TensorGraph
from collir.synthesis.propagation.propagate import propagate_function
from collir.synthesis.propagation.rewrite import rewrite
from collir.synthesis.searching import Limit, TimeUp, within
from collir.synthesis.sharding.explain import Reason
from collir.synthesis.sharding.problem import Sharding
from collir.synthesis.sharding.solver import VariableValues

_RETRIES = 3
"""How often layouts are chosen anew where a simulation does not fit."""

_LESS = 0.98
"""The next limit to try, as a part of the memory with which a simulation would fit."""


@dataclass(frozen=True)
class ShardOptions:
    """Options of a search for layouts.

    Attributes:
        model: the cost model of collectives.
        seconds: the limit of the search of each function; None: no limit.
        memory: the bytes that a function may need on a device; None: the memory of the device.
        explain: whether remarks say why the layouts are as they are.
    """

    model: CostModel
    seconds: float | None = None
    memory: float | None = None
    explain: bool = False

    def limit_on(self, mesh: Mesh) -> float | None:
        """Return the bytes that a function may need on a device of a mesh; None: any number."""
        device = mesh.machine.slowest
        return self.memory or (device and device.memory)


class Layouts(ABC):
    """The layouts of a function.

    Attributes:
        graph: its tensors and steps.
        sharding: the choices.
        limit: the bytes that it may need on a device; None: any number.
        time: the limit of the search.
    """

    def __init__(self, function: FuncOp, closed: bool, options: ShardOptions):
        """Set up the choices.

        Raises:
            TimeUp: the limit was over before all costs were known.
        """
        self.function, self.closed, self.options = function, closed, options
        self.time = Limit.of(options.seconds)
        with no_gc(), within(self.time):
            self.graph = TensorGraph.build(function, closed)
            self._check()
            self.sharding = self._choices()
        self.limit = options.limit_on(self.graph.mesh)

    @abstractmethod
    def _check(self) -> None:
        """Check and prepare the function before choices are set up.

        Raises:
            DiagnosticError: layouts of the function cannot be chosen.
        """

    @abstractmethod
    def _choices(self) -> Sharding:
        """Return the choices of layouts and their costs."""

    @abstractmethod
    def _solution(self, limit: float | None) -> VariableValues:
        """Return the chosen layouts, among those that fit into so much memory.

        Raises:
            DiagnosticError: none were found that fit.
        """

    @abstractmethod
    def _reasons(self, solution: VariableValues) -> list[Reason]:
        """Return what remarks say about a solution."""

    def _does_not_fit(self, at: Operation | None, least: float, others: str) -> DiagnosticError:
        """Return the error that no layouts fit into memory.

        Args:
            at: the operation at which the smallest layouts need most.
            least: the bytes that they need.
            others: a sentence on all other layouts.
        """
        name, limit = self.function.sym_name.data, bytes_text(self.limit or 0.0)
        return DiagnosticError.at(
            at or self.function,
            f"no layouts of @{name} fit into the {limit} of a device: the smallest found need "
            f"{bytes_text(least)} here, and {others}; `recompute` layers, take a smaller batch "
            f"(-p microbatch), or more devices",
        )

    def _peak(self) -> float:
        """Return the bytes that a simulation needs on a device."""
        return simulate_function(self.function, self.options.model).peak

    def run(self) -> None:
        """Choose the layouts, in place. If a simulation needs more memory than there is, they are
        chosen anew for so much less."""
        before, limit = self.function.clone(), self.limit
        solution = first = self._solution(limit)
        reasons = self._reasons(solution)
        self._rewrite(solution)
        for _ in range(_RETRIES):
            peak = self._peak() if limit else 0.0
            if not limit or not self.limit or peak <= self.limit:
                break
            if self.time.is_over:
                reasons.append(Reason(self.function, _above(peak, self.limit)))
                break
            limit *= _LESS * self.limit / peak
            self._restore(before.clone())
            try:
                solution = self._solution(limit)
                bound = min(first.bound, solution.sum)
                solution = replace(solution, bound=bound, ended="less memory was tried")
                reasons = self._reasons(solution)
            except DiagnosticError:
                limit = None
                reasons.append(Reason(self.function, _above(peak, self.limit)))
            self._rewrite(solution)
        for item, text in reasons:
            remark(item, text)
        del self.function.attributes[AUTO]

    def _restore(self, before: FuncOp) -> None:
        """Give the function its former steps back."""
        self.function.properties["function_type"] = before.function_type
        old = self.function.body.detach_block(self.function.body.block)
        old.drop_all_references()
        self.function.body.add_block(before.body.detach_block(before.body.block))
        self.graph = TensorGraph.build(self.function, self.closed)
        self.sharding = self._choices()

    def _rewrite(self, solution: VariableValues) -> None:
        values, sharding = solution.values, self.sharding
        layouts = [sharding.layout(values, tensor) for tensor in self.graph.tensors]
        with listening(lambda _: None):  # the moves of operands were chosen
            rewrite(
                self.function,
                self.graph,
                layouts,
                lambda step: [LayoutChoice(sharding.way(values, step).axes)],
            )
        reduce_behind_loops(self.function)


def choose_layouts(
    kind: "type[Layouts]", function: FuncOp, closed: bool, options: ShardOptions
) -> None:
    """Choose the layouts of a function, in place, by a kind of search; if time is up before all
    costs are known, as ``propagate`` does.

    Args:
        closed: whether the types of arguments and results stay as they are.

    Raises:
        DiagnosticError: layouts cannot be chosen, or none were found that fit into memory.
    """
    try:
        layouts = kind(function, closed, options)
    except TimeUp:
        name, limit = function.sym_name.data, options.limit_on(mesh_of(function))
        text = f"the costs of all layouts of @{name} were not known within the limit of "
        text += f"{options.seconds:g} s: its layouts are those of `propagate`, and others may be "
        remark(function, f"{text}better; a greater limit looks for them")
        propagate_function(function, closed)
        peak = simulate_function(function, options.model).peak if limit else 0.0
        if limit and peak > limit:
            remark(function, _above(peak, limit))
    else:
        layouts.run()


def _above(peak: float, limit: float) -> str:
    return f"a simulation needs {bytes_text(peak)} on a device, more than {bytes_text(limit)}"
