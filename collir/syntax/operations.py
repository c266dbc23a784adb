"""How every operation is written: its operands and clauses, in the order they are printed.

The reader and the writer both go by this table; a new operation is one line of it.
"""

from dataclasses import dataclass
from enum import Enum, auto

from collir.dialects import coll


class Kind(Enum):
    """What stands behind a clause's keyword."""

    AXES = auto()
    INTEGER = auto()
    SIZES = auto()
    NUMBER = auto()
    NAME = auto()
    FLAG = auto()
    TYPE = auto()


@dataclass(frozen=True)
class Clause:
    """``keyword argument``, kept in the property ``name``; optional if it has a default, or
    is said to be: then there is no property without it."""

    keyword: str
    name: str
    kind: Kind
    default: int | None = None
    optional: bool = False


@dataclass(frozen=True)
class Signature:
    """An operation with its clauses; ``operands`` is how many it takes, None for any number."""

    op: type[coll.CollOp]
    clauses: tuple[Clause, ...] = ()
    operands: int | None = 1

    def usage(self, mnemonic: str) -> str:
        """How to write it, as in ``all_gather %x over AXES dim N``."""
        shown = {
            Kind.AXES: "AXES",
            Kind.INTEGER: "N",
            Kind.SIZES: "[N, ...]",
            Kind.NUMBER: "NUMBER",
            Kind.NAME: "NAME",
            Kind.TYPE: "TYPE",
            Kind.FLAG: "",
        }
        operands = (
            "%x, ..."
            if self.operands is None
            else ", ".join("%x%y"[i * 2 : i * 2 + 2] for i in range(self.operands))
        )
        parts = [
            f"[{f'{c.keyword} {shown[c.kind]}'.rstrip()}]"
            if c.default is not None or c.optional
            else f"{c.keyword} {shown[c.kind]}"
            for c in self.clauses
        ]
        return " ".join([mnemonic, operands, *parts])


_OVER = Clause("over", "axes", Kind.AXES)
_DIM = Clause("dim", "dim", Kind.INTEGER)
_USING = Clause("using", "algorithm", Kind.NAME, optional=True)
_ASYNC = Clause("async", "async", Kind.FLAG, optional=True)

SIGNATURES: dict[str, Signature] = {
    "all_reduce": Signature(coll.AllReduceOp, (_OVER, _USING, _ASYNC)),
    "reduce": Signature(coll.ReduceOp, (_OVER, _USING, _ASYNC)),
    "broadcast": Signature(coll.BroadcastOp, (_OVER, _USING, _ASYNC)),
    "reduce_scatter": Signature(coll.ReduceScatterOp, (_OVER, _DIM, _USING, _ASYNC)),
    "all_gather": Signature(coll.AllGatherOp, (_OVER, _DIM, _USING, _ASYNC)),
    "scatter": Signature(coll.ScatterOp, (_OVER, _DIM, _USING, _ASYNC)),
    "gather": Signature(coll.GatherOp, (_OVER, _DIM, _USING, _ASYNC)),
    "all_to_all": Signature(
        coll.AllToAllOp,
        (
            _OVER,
            Clause("dim", "source", Kind.INTEGER),
            Clause("to", "target", Kind.INTEGER),
            _USING,
            _ASYNC,
        ),
    ),
    "permute": Signature(coll.PermuteOp, (Clause("to", "to", Kind.TYPE),)),
    "redistribute": Signature(coll.RedistributeOp, (Clause("to", "to", Kind.TYPE),)),
    "slice": Signature(coll.SliceOp, (_OVER, _DIM)),
    "keep_root": Signature(coll.KeepRootOp, (_OVER,)),
    "mask": Signature(coll.MaskOp, (_OVER, Clause("op", "reduction", Kind.NAME))),
    "split": Signature(coll.SplitOp, (_DIM, Clause("into", "sizes", Kind.SIZES))),
    "merge": Signature(coll.MergeOp, (_DIM,)),
    "reshape": Signature(coll.ReshapeOp, (Clause("to", "shape", Kind.SIZES),)),
    "transpose": Signature(coll.TransposeOp, (Clause("order", "order", Kind.SIZES),)),
    "pad": Signature(
        coll.PadOp,
        (
            _DIM,
            Clause("low", "low", Kind.INTEGER, default=0),
            Clause("high", "high", Kind.INTEGER, default=0),
            Clause("value", "value", Kind.NUMBER, default=0),
        ),
    ),
    "scale": Signature(coll.ScaleOp, (Clause("by", "factor", Kind.NUMBER),)),
    "cast": Signature(coll.CastOp, (Clause("to", "dtype", Kind.NAME),)),
    "add": Signature(coll.AddOp, operands=2),
    "concat": Signature(coll.ConcatOp, (_DIM,), operands=None),
    "compute": Signature(coll.ComputeOp, (Clause("flops", "flops", Kind.NUMBER),), operands=None),
}
