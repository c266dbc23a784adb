"""Collectives in the local dialect: what is started, and waited for."""

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    IntegerAttr,
    StringAttr,
    UnitAttr,
)
from xdsl.ir import (
    Attribute,
    SSAValue,
)
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.utils.exceptions import VerifyException

from collir.dialects.algorithms import AlgorithmAttr
from collir.dialects.local_program import (
    AtOp,
    bounds,
    check_numbers,
    mesh_at,
    ranks_at,
    same_numbers,
)
from collir.dialects.local_types import (
    BufferType,
    RankNumberAttr,
    TokenType,
    buffer_of,
)
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import AxesAttr, DistTensorType
from collir.layout import Reduction
from collir.layout.cuts import places
from collir.layout.local import (
    Ranks,
    atoms_in,
    axes_of,
    number_at,
    table,
)
from collir.layout.mesh import digits_over, index_over
from collir.layout.sizes import OpenSize


@irdl_op_definition
class StartOp(IRDLOperation):
    """The start of a collective, whose blocks lie one behind the other in the order of the group.

    Attributes:
        kind: the name of the collective.
        axes: the sub-axes of its groups, in order.
        reduction: the reduction of a collective that reduces.
        algorithm: the requested algorithm.
        root: the number in the group of the rank that holds the operand of a broadcast or a
            scatter, or the result of a reduce or a gather.
        sender, receiver: of a send, the numbers of these ranks in the group.
        peers: of a send of several ranks, for each rank of the group the number of the one that it
            sends to; its own if it sends nothing. Each receives from one at most.
        distance, open: of a shift, the distance, and whether it is along a line.
        is_async: that it has a queue of its own, where a library has several.
        before, after: of a permute, the layouts; else it is over the axes.
        sends, receives: of a collective whose blocks differ in size, the number of elements sent to
            each rank of the group, and received from each.
    """

    name = "local.start"

    kind = prop_def(StringAttr)
    axes = prop_def(AxesAttr)
    reduction = opt_prop_def(StringAttr)
    algorithm = opt_prop_def(StringAttr | AlgorithmAttr)
    root = opt_prop_def(IntegerAttr[I64])
    sender = opt_prop_def(IntegerAttr[I64])
    receiver = opt_prop_def(IntegerAttr[I64])
    distance = opt_prop_def(IntegerAttr[I64])
    open = opt_prop_def(UnitAttr)
    is_async = opt_prop_def(UnitAttr, prop_name="async")
    before = opt_prop_def(DistTensorType)
    after = opt_prop_def(DistTensorType)
    peers = opt_prop_def(ArrayAttr[RankNumberAttr])
    sends = opt_prop_def(ArrayAttr[RankNumberAttr])
    receives = opt_prop_def(ArrayAttr[RankNumberAttr])
    source = operand_def(BufferType)
    target = operand_def(BufferType)
    token = result_def(TokenType)

    @staticmethod
    def of(
        kind: str,
        axes: Sequence[str],
        source: SSAValue,
        target: SSAValue,
        properties: Mapping[str, Attribute],
    ) -> "StartOp":
        """Return the start of a collective."""
        named = {"kind": StringAttr(kind), "axes": AxesAttr(tuple(axes))}
        return StartOp.create(
            operands=[source, target],
            properties={**named, **properties},
            result_types=[TokenType()],
        )

    @property
    def called(self) -> str:
        """The name of the collective."""
        return self.kind.data

    @property
    def operation(self) -> Reduction | None:
        """The reduction; None if it does not reduce."""
        return Reduction(self.reduction.data) if self.reduction else None

    def number(self, name: str) -> int:
        """Return the property of a name as a number; 0 if it is missing."""
        value = self.properties.get(name)
        return value.value.data if isinstance(value, IntegerAttr) else 0

    @property
    def counts(self) -> tuple[Sequence[int], Sequence[int]]:
        """The elements of the blocks that leave for each rank, and that come from each rank; empty
        if all are equal."""
        leave, come = ([x.data for x in side or ()] for side in (self.sends, self.receives))
        return leave, come

    @property
    def receivers(self) -> Sequence[int]:
        """Of a send of several ranks, to whom each rank sends; itself if it sends nothing."""
        return [x.data for x in self.peers or ()]

    @property
    def senders(self) -> Sequence[int]:
        """Of a send of several ranks, from whom each rank receives; itself if it does not."""
        found = list(range(len(self.receivers)))
        for rank, to in enumerate(self.receivers):
            found[to] = rank if to != rank else found[to]
        return found

    @property
    def partners(self) -> tuple[int, int]:
        """Of a send of several ranks, the numbers to whom this rank sends, and from whom it
        receives; that of the size of the group stands for none."""
        count = len(self.receivers)
        to, source = (
            table(self.axes.data, [count if x == rank else x for rank, x in enumerate(side)])
            for side in (self.receivers, self.senders)
        )
        return to, source

    def verify_(self) -> None:
        mesh, name = mesh_at(self), self.kind.data
        operation = OPERATIONS.get(name)
        if operation is None or not operation.KIND.sends:
            raise VerifyException(f"there is no collective {name}")
        kind = operation.KIND
        if unknown := [axis for axis in self.axes.data if axis not in mesh.by_name]:
            raise VerifyException(f"@{mesh.name} has no sub-axis {unknown[0]}")
        if isinstance(self.algorithm, AlgorithmAttr):
            if (of := self.algorithm.data.collective) != name:
                raise VerifyException(f"{self.algorithm.data} is an algorithm of {of}")
        elif self.algorithm and self.algorithm.data not in kind.algorithms:
            known = ", ".join(kind.algorithms) or "none"
            raise VerifyException(f"{name} has no algorithm '{self.algorithm.data}': use {known}")
        if kind.reduces is (self.reduction is None):
            raise VerifyException(f"{name} {'has no' if kind.reduces else 'takes no'} reduction")
        source, target = buffer_of(self.source), buffer_of(self.target)
        if source.dtype is not target.dtype:
            raise VerifyException(f"{name} does not make {target.dtype} of {source.dtype}")
        if not (source.is_contiguous and target.is_contiguous):
            raise VerifyException(f"{name} takes contiguous buffers: copy into one")
        count = mesh.group_size(self.axes.data)
        if self.peers is not None:
            self._check_peers(ranks_at(self), count)
        elif self.sends is not None or self.receives is not None:
            self._check_counts(ranks_at(self), count)
        elif self.before is None:
            held = source.elements * (count if kind.gathers else 1)
            left = target.elements * (count if kind.shards else 1)
            if not same_numbers(self, [held], [left]):
                message = f"{name} of {count} ranks does not make {target} of {source}"
                raise VerifyException(message)
        for word in ("root", "sender", "receiver"):
            if not 0 <= self.number(word) < max(1, count):
                raise VerifyException(f"a group of {count} ranks has no {word} {self.number(word)}")
        if kind.exchanges and self.sends is None and source.elements % count:
            raise VerifyException(f"{source} has no {count} equal blocks")
        if len(list(self.token.uses)) != 1:
            raise VerifyException(f"this {name} has no wait, or several")

    def _check_peers(self, ranks: Ranks, count: int) -> None:
        """Check that the blocks that ranks send fit into the buffers of their peers."""
        name, axes, peers = self.called, self.axes.data, self.receivers
        if name != "send":
            raise VerifyException(f"a send has `peers`, and a {name} has none")
        if len(peers) != count:
            raise VerifyException(f"`peers` gives a rank for each of {count} ranks")
        for rank, to in enumerate(peers):
            if isinstance(to, OpenSize) or not 0 <= to < count:
                raise VerifyException(f"a group of {count} ranks has no rank {to}")
            others = [x for x, peer in enumerate(peers[:rank]) if peer == to and x != to]
            if to != rank and others:
                raise VerifyException(f"rank {to} receives from {others[0]} and from {rank}")
        source, target = buffer_of(self.source).elements, buffer_of(self.target).elements
        named = [x for atom in atoms_in([source, target]) for x in axes_of(atom)]
        for at in places(ranks.mesh, list(dict.fromkeys([*axes, *named]))):
            rank = index_over(ranks.mesh, axes, at)
            there = {**at, **digits_over(ranks.mesh, axes, peers[rank])}
            sent, kept = number_at(source, ranks.mesh, at), number_at(target, ranks.mesh, there)
            if peers[rank] != rank and sent != kept:
                raise VerifyException(
                    f"rank {rank} sends {sent} elements where rank {peers[rank]} receives {kept}"
                )

    def _check_counts(self, ranks: Ranks, count: int) -> None:
        """Check that blocks of different sizes add up to the buffers."""
        name, kind, axes = self.called, OPERATIONS[self.called].KIND, self.axes.data
        sides = zip(
            ("sends", "receives"),
            (kind.shards or kind.exchanges, kind.gathers or kind.exchanges),
            self.counts,
            map(buffer_of, (self.source, self.target)),
            map(buffer_of, (self.target, self.source)),
            strict=True,
        )
        for word, has, blocks, whole, opposite in sides:
            if not has and blocks:
                raise VerifyException(f"{name} has no blocks of sizes that `{word}` gives")
            if not has:
                continue
            if len(blocks) != count:
                raise VerifyException(f"`{word}` gives a size for each of {count} ranks")
            check_numbers(blocks, ranks)
            if bounds(sum(blocks) - whole.elements, ranks) != (0, 0):
                raise VerifyException(f"the blocks of `{word}` are not all of {whole}")
            named = (x for atom in atoms_in([*blocks, opposite.elements]) for x in axes_of(atom))
            for at in places(ranks.mesh, list(dict.fromkeys([*axes, *named]))):
                own = number_at(blocks[index_over(ranks.mesh, axes, at)], ranks.mesh, at)
                if not kind.exchanges and own != number_at(opposite.elements, ranks.mesh, at):
                    raise VerifyException(f"`{word}` gives {own} for the block of {opposite}")


@irdl_op_definition
class WaitOp(IRDLOperation):
    """The end of what is under way."""

    name = "local.wait"

    token = operand_def(TokenType)

    assembly_format = "$token attr-dict"


def started_by(token: SSAValue) -> StartOp | None:
    """Return the collective of a token, also through the result of an ``at``."""
    while isinstance(token.owner, AtOp):
        token = token.owner.yielded[list[SSAValue](token.owner.tokens).index(token)]
    return token.owner if isinstance(token.owner, StartOp) else None
