"""Attention around a ring wherever keys and values would be gathered.

In explicit functions, types show where. In auto functions, layouts depend on the callers. So they
are chosen in a copy of the module: attention that is gathered for there goes around a ring here,
before gradients are made. Each function that layouts begin in gets copies of the functions with
attention that it calls.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, SymbolRefAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from collir.dialects.machine import function_of
from collir.dialects.nested import CallOp
from collir.dialects.operation import DistOp, value_text
from collir.ir.auto import auto_functions, is_auto, set_auto
from collir.ir.calls import callees_first, calls_in, inline_call
from collir.ir.functions import functions_of
from collir.ir.fusion import kernel_name
from collir.ir.names import unused_symbol
from collir.ir.remarks import remark
from collir.layout import LayoutError
from collir.layout.nn import SOFTMAX
from collir.synthesis.propagation.propagate import make_explicit
from collir.transforms.ring_attention.attention import (
    Attention,
    Blocks,
    NotOneByOne,
    attentions_in,
    blocks_of,
    collect_leaves,
    other_use,
    others_in,
)
from collir.transforms.ring_attention.ring import write_ring

_SITE = "coll.site"
"""The attribute that finds a step of a module in a copy of it."""


def send_around_rings(module: ModuleOp, name: str) -> None:
    """Let the keys and values of attention go around rings instead of being gathered, in place.

    Args:
        name: the name of the pass, for remarks.
    """
    for function in functions_of(module):
        if not is_auto(function):
            _explicit(function, name)
    for function, sites in _sites(module, name):
        _Root(module, function, sites, name).run()


# ---------------------------------------------------------------------------------------------
# Explicit functions
# ---------------------------------------------------------------------------------------------


def _explicit(function: FuncOp, name: str) -> None:
    """Rewrite the attention in an explicit function."""
    _inline_attention(function)
    for attention in list(attentions_in(function)):
        try:
            blocks = blocks_of(attention)
            if blocks is not None:
                _check_uses(attention)
                fused = kernel_name(attention.softmax) is not None
                write_ring(attention, blocks, fused)
        except (NotOneByOne, LayoutError) as error:
            _remark(attention.softmax, name, error)
    for softmax, error in others_in(function):
        _remark(softmax, name, error)


def _inline_attention(function: FuncOp) -> None:
    """Inline callees with attention whose operands are gathered in front of the calls."""
    calls = [call for call in calls_in(function) if not call.sought and _has_attention(call)]
    if not calls:
        return
    copy = function.clone()
    block = function.parent_block()
    assert block is not None
    block.insert_op_after(copy, function)
    try:
        before = sum(map(_is_gathered, attentions_in(copy)))
        _inline_all(copy)
        more = sum(map(_is_gathered, attentions_in(copy))) > before
    finally:
        copy.detach()
        copy.erase(safe_erase=False)
    if more:
        _inline_all(function)


def _inline_all(function: FuncOp) -> None:
    while calls := [x for x in calls_in(function) if not x.sought and _has_attention(x)]:
        for call in calls:
            _ = inline_call(call, function)


def _has_attention(call: CallOp) -> bool:
    """Return whether a called function, or one that it calls, has attention."""
    callee = call.function()
    if callee is None:
        return False
    return any(True for _ in attentions_in(callee)) or any(map(_has_attention, calls_in(callee)))


def _is_gathered(attention: Attention) -> bool:
    try:
        return blocks_of(attention) is not None
    except NotOneByOne:
        return True


def _check_uses(attention: Attention) -> None:
    """Check that nothing else needs the scores.

    Raises:
        NotOneByOne: another step does.
    """
    used = other_use(attention)
    if used is not None:
        raise NotOneByOne(
            f"{value_text(used, 'what it computes')} is used elsewhere, too; if a gradient uses "
            "it, put the pass in front of differentiate and propagate"
        )


def _remark(softmax: Operation, name: str, error: Exception) -> None:
    text = error.text(["an operand"] * 9) if isinstance(error, LayoutError) else str(error)
    remark(softmax, f"{name} keeps the attention with this softmax: {text}")


# ---------------------------------------------------------------------------------------------
# Auto functions
# ---------------------------------------------------------------------------------------------

_Sites = dict[Operation, Blocks | NotOneByOne]
"""The softmax of attention whose keys are gathered, with the blocks of its operands."""


def _sites(module: ModuleOp, name: str) -> Iterator[tuple[FuncOp, _Sites]]:
    """Yield the auto functions that no other one calls, each with the attention for which operands
    are gathered, in it and in its callees. Other steps with gathered operands get a remark."""
    called = {call.function() for f in auto_functions(module) for call in calls_in(f)}
    roots = [function for function in auto_functions(module) if function not in called]
    if not roots:
        return
    steps = [op for op in module.walk() if isinstance(op, DistOp)]
    for number, op in enumerate(steps):
        op.attributes[_SITE] = IntegerAttr(number, i64)
    copy = module.clone()
    for op in steps:
        del op.attributes[_SITE]
    make_explicit(copy, whole=SOFTMAX)
    explicit = {function.sym_name.data: function for function in functions_of(copy)}
    others = {
        steps[site.value.data]: error
        for function in roots
        for softmax, error in others_in(explicit[function.sym_name.data])
        if isinstance(site := softmax.attributes.get(_SITE), IntegerAttr)
    }
    for softmax, error in others.items():
        _remark(softmax, name, error)
    for function in roots:
        sites: _Sites = {}
        for attention in attentions_in(explicit[function.sym_name.data]):
            site = attention.softmax.attributes.get(_SITE)
            if isinstance(site, IntegerAttr):
                _add_site(sites, steps[site.value.data], attention)
        if sites:
            yield function, sites


def _add_site(sites: _Sites, softmax: Operation, attention: Attention) -> None:
    try:
        blocks: Blocks | NotOneByOne | None = blocks_of(attention)
    except NotOneByOne as error:
        blocks = error
    if blocks is None:
        return
    known = sites.setdefault(softmax, blocks)
    if isinstance(known, Blocks) and known != blocks:
        sites[softmax] = NotOneByOne("its calls have it in several layouts")


@dataclass
class _Root:
    """An auto function that layouts begin in.

    Attributes:
        copies: the copies of functions that the root calls in place of the originals.
        steps: the steps of the copies, by those of the originals.
        kernels: the functions whose steps were parts of kernels before any became a ring.
    """

    module: ModuleOp
    function: FuncOp
    sites: Mapping[Operation, Blocks | NotOneByOne]
    name: str
    copies: dict[FuncOp, FuncOp] = field(default_factory=dict[FuncOp, FuncOp])
    steps: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])
    kernels: set[FuncOp] = field(default_factory=set[FuncOp])

    def run(self) -> None:
        self._copy_callees()
        self.kernels = self._kernels()
        for function in (self.function, *self.copies.values()):
            for attention in list(attentions_in(function)):
                blocks = self.sites.get(self.steps.get(attention.softmax, attention.softmax))
                if blocks is not None:
                    self._write(function, attention, blocks)

    def _copy_callees(self) -> None:
        """Call copies of the functions with attention whose operands are gathered."""
        owners = {function_of(op) for op in self.sites}
        for function in callees_first(self.module):
            callees = {call.function() for call in calls_in(function)}
            needed = function in owners or not callees.isdisjoint(self.copies)
            if needed and function is not self.function and self._is_reached(function):
                self._copy(function)
        for function in (self.function, *self.copies.values()):
            for call in calls_in(function):
                callee = call.function()
                if callee is not None and callee in self.copies:
                    name = self.copies[callee].sym_name.data
                    call.properties["callee"] = SymbolRefAttr(name)

    def _is_reached(self, function: FuncOp) -> bool:
        """Return whether the root calls a function, itself or through others."""
        pending, seen = [self.function], set[FuncOp]()
        while pending:
            caller = pending.pop()
            if caller is function:
                return True
            seen.add(caller)
            callees = (call.function() for call in calls_in(caller))
            pending += (x for x in callees if x is not None and x not in seen)
        return False

    def _copy(self, function: FuncOp) -> None:
        copy = function.clone()
        set_auto(copy)
        stem = f"{function.sym_name.data}_in_{self.function.sym_name.data}"
        copy.properties["sym_name"] = type(function.sym_name)(unused_symbol(self.module, stem))
        block = function.parent_block()
        assert block is not None
        block.insert_op_after(copy, function)
        self.copies[function] = copy
        self.steps |= zip(copy.walk(), function.walk(), strict=True)

    def _write(self, function: FuncOp, attention: Attention, blocks: Blocks | NotOneByOne) -> None:
        """Rewrite attention, or remark why it stays as it is."""
        try:
            if isinstance(blocks, NotOneByOne):
                raise blocks
            _check_uses(attention)
            attention.query_dim = blocks.query_dim
            collect_leaves(attention)
            if len(attention.leaves) + 3 != len(blocks.layouts):
                raise NotOneByOne("its mask takes other operands where layouts are chosen")
            write_ring(attention, blocks, self._unfuse(function), requests=True)
        except (NotOneByOne, LayoutError) as error:
            _remark(attention.softmax, self.name, error)

    def _functions(self) -> list[FuncOp]:
        """Return the functions of this root, each behind its callees."""
        own = {self.function, *self.copies.values()}
        return [function for function in callees_first(self.module) if function in own]

    def _kernels(self) -> set[FuncOp]:
        """Return the functions that are called as one kernel, and their callees."""
        pending = [x for f in self._functions() for x in calls_in(f) if x.fused is not None]
        seen = set[FuncOp]()
        while pending:
            callee = pending.pop().function()
            if callee is not None and callee not in seen:
                seen.add(callee)
                pending += calls_in(callee)
        return seen

    def _unfuse(self, function: FuncOp) -> bool:
        """Turn the kernels around a function into plain calls; return whether it was in one."""
        around = {function}
        for caller in self._functions():
            for call in calls_in(caller):
                if call.function() in around:
                    around.add(caller)
                    call.properties.pop("fused", None)
        return function in self.kernels
