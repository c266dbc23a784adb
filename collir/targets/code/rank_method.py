"""The method of a local function in Python: a class per library says its words.

Each memory is a variable. Memory whose first write is a whole result is made by that: the variable
is assigned. Other memory is made empty in front of its first use. Views are expressions where they
are used. An iteration of a loop makes the arrays of its carries, so it needs no spare ones.
"""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, NamedTuple

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, Operation, SSAValue

from collir.dialects.local import (
    STEP,
    AllocOp,
    ComputeOp,
    CopyOp,
    FreeOp,
    LocalCallOp,
    LocalFuncOp,
    LocalRepeatOp,
    StartOp,
    WaitOp,
    origin_of,
    place_around,
    started_by,
)
from collir.dialects.local_types import buffer_of
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.ir.names import names_in_block
from collir.ir.remarks import remark as remark_at
from collir.layout import DType, Place, Reduction, place_at
from collir.layout.local import LocalBuffer
from collir.layout.mesh import digits_over
from collir.layout.operation_table import OperationTable
from collir.layout.sizes import OpenSize
from collir.targets.code.forms import Expression
from collir.targets.code.python_lines import lines_of
from collir.targets.code.python_text import comment, remark, tuple_text, variables
from collir.targets.code.rank_forms import RankStep
from collir.targets.code.rank_leaves import (
    Piece,
    RankOperation,
    is_memory,
    is_waited_at_once,
    is_whole,
    leaves,
    loops_around,
    merged_pieces,
    place_of_memory,
    place_of_view,
    used_by,
    written_by,
)
from collir.targets.code.rank_mesh import MeshText
from collir.targets.code.rank_views import ArrayWords, view_text


@dataclass(frozen=True)
class CollectiveCall:
    """A collective with its arrays as expressions.

    Attributes:
        source, out: the operand, and the result.
        new: the statements that make the array of the result; none if it is there.
        x, y: the buffers of the operand and of the result.
        group: the number of ranks in a group.
        root: the condition that this rank is the root, or the sender.
        token: the variable of what is under way; empty if it is waited for at once.
        work: a variable for an array besides these.
    """

    op: StartOp
    source: str
    out: str
    new: list[str]
    x: LocalBuffer
    y: LocalBuffer
    group: int
    root: str
    token: str
    work: str

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self.x.dtype


class Transfer(NamedTuple):
    """The statements that start a collective, and the statements that wait for it."""

    start: list[str]
    wait: list[str]


Sender = OperationTable[Any]
"""Methods from a ``CollectiveCall`` to its ``Transfer``, or to statements that wait at once."""


@dataclass
class RankMethod(ArrayWords):
    """The method of a local function; a library says how its arrays are made and sent.

    Attributes:
        is_task: whether other methods call it.
        needs: the helpers and modules that it uses.
        text_of: the expression of each memory.
        places: the place of the ranks that have a memory.
    """

    function: LocalFuncOp
    names: MeshText
    is_task: bool
    needs: set[str] = field(default_factory=set[str])

    array: ClassVar[str]
    """The word for an array in docstrings, with its article."""
    STEP: ClassVar[type[RankStep]]
    """The form of a computation for its expression."""
    EXPRESSIONS: ClassVar[Mapping[str, Expression[Any]]]
    """The expression of each computation, by its name."""
    NATIVE: ClassVar[Collection[str]]
    """The computations that the library does in types of 16 bits; others are in f32."""
    USES: ClassVar[Mapping[str, Sequence[str]]]
    """The methods and modules that methods of computations use."""
    COLLECTIVES: ClassVar[Sender]
    """The statements of each collective, for the ranks that take part."""

    def __post_init__(self) -> None:
        self.mesh = self.names.mesh
        self.text_of: dict[SSAValue, str] = {}
        self.places: dict[SSAValue, Place] = {}
        self.pending: dict[StartOp, list[str]] = {}
        self.made: set[SSAValue] = set()  # memory that has an array
        self.starts: dict[str, str] = {}  # where views of an operation begin, each with a variable
        self._name()
        places = (place.data for place in self.function.places)
        self.places |= zip(self.function.body.block.args, places, strict=True)

    def _name(self) -> None:
        """Give each memory a variable, and each loop, and each collective that is under way."""
        body = self.function.body.block
        shown = names_in_block(body)
        memory = [x for x in shown if is_memory(x)]
        number = count()
        words = [shown[x] if x.name_hint else str(next(number)) for x in memory]
        self.text_of |= zip(memory, variables(words), strict=True)
        self.fields = {x: word for x, word in zip(memory, words, strict=True) if "." in word}
        ops = list(self.function.walk())
        starts = [op for op in ops if isinstance(op, StartOp)]
        loops = [op for op in ops if isinstance(op, LocalRepeatOp)]
        held = [self.text_of[origin_of(op.target)[0]] for op in starts]
        depths = [loops_around(op) for op in loops]
        levels = 1 + max(depths, default=-1)
        words = ["made", *("i" for _ in range(levels)), *(f"{x}_sent" for x in held)]
        words += [f"{x}_work" for x in held]
        self.made_name, *named = variables(words, self.text_of.values())
        self.index: dict[Operation, str] = {
            op: named[depth] for op, depth in zip(loops, depths, strict=True)
        }
        rest = named[levels:]
        self.tokens: dict[Operation, str] = dict(zip(starts, rest, strict=False))
        self.works: dict[Operation, str] = dict(zip(starts, rest[len(starts) :], strict=True))

    # --- what a library says ----------------------------------------------------------------

    @abstractmethod
    def dtype(self, dtype: DType) -> str:
        """Return an element type."""

    @abstractmethod
    def empty(self, x: LocalBuffer) -> str:
        """Return a new array."""

    @abstractmethod
    def copied(self, text: str, *, in_order: bool | None = True) -> str:
        """Return a new array with the elements of another in order.

        Args:
            in_order: whether they are in order already; None if that depends on the rank.
        """

    @abstractmethod
    def cast(self, text: str, dtype: DType) -> str:
        """Return an array in another element type."""

    @abstractmethod
    def in_order(self, op: DistOp, text: str) -> str:
        """Return the result of a computation as a new array with its elements in order."""

    def prologue(self) -> list[str]:
        """Return the statements before those of a method."""
        return []

    def spelled(self, number: int) -> str:
        return self.names.spelled(number)

    def begin(self, number: int) -> str:
        text = self.spelled(number)
        if not isinstance(number, OpenSize) or " " not in text:
            return text
        free = [name for name in ("start", "start_2") if name not in self.starts.values()]
        if text not in self.starts and free:
            self.starts[text] = free[0]
        return self.starts.get(text, text)

    def started(self, lines: list[str]) -> list[str]:
        """Return statements after those that define where their views begin."""
        known, self.starts = self.starts, {}
        return [*(f"{name} = {text}" for text, name in known.items()), *lines]

    def shape(self, sizes: Sequence[int]) -> str:
        """Return a shape as a tuple."""
        return tuple_text([self.spelled(size) for size in sizes])

    # --- the method -------------------------------------------------------------------------

    def text(self, described: Sequence[str]) -> list[str]:
        """Return the lines of the method, indented as in a class.

        Args:
            described: the global types of arguments and results.
        """
        function = self.function
        checks = [self._checked(arg) for arg in function.inputs]
        body = list(self._placed(checks, ()))
        body += self._block(function.body.block, (), function.outputs)
        body += self._returned()
        arguments = ", ".join(["self", *(self.text_of[arg] for arg in function.inputs)])
        head = lines_of(f"def {function.sym_name.data}({arguments})", 5)
        head[-1] += ":"
        docs = self._docstring(described)
        lines = [*head, *(f"    {line}" if line else "" for line in docs)]
        for statement in [*self.prologue(), *body]:
            bare = statement.lstrip()
            indent = 4 + len(statement) - len(bare)
            made = [bare] if bare.startswith("#") else lines_of(bare, indent + 4)
            lines += [f"{' ' * indent}{line}" for line in made]
        return [f"    {line}" if line else "" for line in lines]

    def _docstring(self, described: Sequence[str]) -> list[str]:
        inputs, outputs = self.function.inputs, self.function.outputs
        lines = ['"""Every rank calls it with what it holds.', ""]
        for title, values, texts in (
            ("Args:", inputs, described),
            ("Returns:", outputs, described[len(inputs) :]),
        ):
            if not values:
                continue
            lines += [""] if len(lines) > 2 else []
            pairs = zip(values, texts, strict=False)
            lines += [title, *(f"    {self._meaning(x, text)}" for x, text in pairs)]
        return [f'{lines[0]}"""'] if len(lines) == 2 else [*lines, '"""']

    def _meaning(self, value: SSAValue, text: str) -> str:
        """Return the type of a value, and the shape of the block on a rank."""
        shape = self.shape(buffer_of(value).shape)
        about = f"{comment(text)}, on each rank {self.array} of shape {shape}"
        if place := self.places[value]:
            at = dict(place)
            where = " and ".join(f"{axis} = {at[axis]}" for axis in self.mesh.ordered(at))
            about += f" where {comment(where)}, else None"
        field = f" ({self.fields[value]})" if value in self.fields else ""
        return f"{self.text_of[value]}{field}: {about}."

    def _checked(self, arg: SSAValue) -> Piece:
        """Return the statement that checks an argument of a caller."""
        self.made.add(arg)
        if self.is_task:
            return (), []
        x, name = buffer_of(arg), self.text_of[arg]
        self.needs.add("argument")
        shape = self.shape(x.shape)
        shown = self.fields.get(arg, name)
        checked = f'{name} = self._argument("{shown}", {name}, {self.dtype(x.dtype)}, {shape})'
        return self.places[arg], [checked]

    def _returned(self) -> list[str]:
        results = [self.text_of[x] if x in self.made else "None" for x in self.function.outputs]
        for number, value in enumerate(self.function.outputs):
            if condition := self.names.at_place(self.places[value]):
                results[number] += f" if {condition} else None"
        return [f"return {', '.join(results)}"] if results else []

    # --- memory -------------------------------------------------------------------------------

    def of(self, value: SSAValue) -> str:
        """Return a buffer as an expression."""
        place, (root, start) = place_of_view(value), origin_of(value)
        text, shape = self.text_of[root], buffer_of(root).shape
        return view_text(self, text, shape, buffer_of(value), start, self.mesh, place)

    def assigned(self, target: SSAValue, text: str) -> str:
        """Return the statement that gives a buffer new elements."""
        place = self.of(target)
        return f"{place} = {text}" if place.endswith("]") else f"{place}[...] = {text}"

    def _new(self, target: SSAValue, text: str) -> str:
        """Return the statement that makes memory, of an array with its elements in order."""
        root = origin_of(target)[0]
        self.made.add(root)
        if buffer_of(root).shape != buffer_of(target).shape:
            text = self.reshaped(text, buffer_of(root).shape)
        return f"{self.text_of[root]} = {text}"

    # --- blocks -------------------------------------------------------------------------------

    def _block(self, block: Block, context: Place, outputs: Sequence[SSAValue]) -> list[str]:
        """Return the statements of a block.

        Args:
            context: the place of the ranks that run it.
            outputs: the memory of its arguments that it writes.
        """
        ops = [leaf for leaf in leaves(block, context) if not isinstance(leaf.op, AllocOp)]
        first: dict[SSAValue, int] = {}
        for number, (_, op) in enumerate(ops):
            for root in used_by(op) if not isinstance(op, FreeOp) else ():
                first.setdefault(root, number)
        allocated = [op.result for op in block.ops if isinstance(op, AllocOp)]
        own = dict.fromkeys([*allocated, *outputs])
        new: dict[int, list[SSAValue]] = {}
        for root in own:
            if root in first:
                new.setdefault(first[root], []).append(root)
        self.places |= {x: place_of_memory(x) for x in own if isinstance(x.owner, AllocOp)}
        at_once = {ops[n].op for n in range(len(ops)) if is_waited_at_once(ops, n)}
        pieces: list[Piece] = []
        for number, leaf in enumerate(ops):
            pieces += self._pieces(leaf, new.get(number, []), at_once)
        if block is self.function.body.block:
            users = Counter(x for _, op in ops for x in {*used_by(op)})
            kept = {f"del {self.text_of[x]}" for x, uses in users.items() if uses == 2}
            last = next((n for n in reversed(range(len(pieces))) if not _forgets(pieces[n])), -1)
            pieces[last + 1 :] = [x for x in pieces[last + 1 :] if kept.issuperset(x[1])]
        return list(self._placed(pieces, context))

    def _placed(self, pieces: Sequence[Piece], context: Place) -> Iterator[str]:
        """Yield the statements of pieces, those of one place together."""
        for place, lines in merged_pieces(pieces):
            rest = tuple(item for item in place if item not in context)
            condition = self.names.at_place(rest)
            joined = _with_joined_ends(lines)
            if condition:
                yield f"if {condition}:"
            yield from (f"    {line}" for line in joined) if condition else joined

    def _pieces(
        self, leaf: RankOperation, new: Sequence[SSAValue], at_once: Collection[Operation]
    ) -> list[Piece]:
        """Return the statements of an operation.

        Args:
            new: the memory that it is the first to use.
            at_once: the collectives that are waited for at once.
        """
        place, op = leaf
        made = [root for root in new if self._makes(leaf, root)]
        pieces: list[Piece] = []
        for root in new:
            if root not in made:
                self.made.add(root)
                line = f"{self.text_of[root]} = {self.empty(buffer_of(root))}"
                pieces.append((self.places[root], [line]))
        match op:
            case FreeOp():
                root = origin_of(op.memory)[0]
                return [(self.places[root], [f"del {self.text_of[root]}"])] * (root in self.made)
            case WaitOp():
                started = started_by(op.token)
                return [(place, self.pending.pop(started, []) if started else [])]
            case StartOp():
                pieces.append((place, self.started(self._start(op, made, op in at_once))))
            case LocalRepeatOp():
                pieces += self._loop(leaf, made)
            case _:
                pieces.append((place, self.started(self._statements(op, made))))
        note, pieces = op.attributes.get(STEP), [piece for piece in pieces if piece[1]]
        if isinstance(note, StringAttr) and pieces:
            pieces.insert(0, (pieces[0][0], [f"# {remark(note.data)}"]))
        return pieces

    def _makes(self, leaf: RankOperation, root: SSAValue) -> bool:
        """Return whether an operation makes all of some memory."""
        place, op = leaf
        if isinstance(op, StartOp):
            at = self._receiving(leaf)
            return at == self.places[root] and is_whole(op.target, in_any_order=False)
        if place != self.places[root] and not isinstance(op, LocalRepeatOp):
            return False
        written = [x for x in written_by(op) if origin_of(x)[0] is root]
        reads = sum(x is root for x in used_by(op)) > len(written)
        return len(written) == 1 and not reads and is_whole(written[0], isinstance(op, CopyOp))

    def _receiving(self, leaf: RankOperation) -> Place:
        """Return the place of the ranks that get a result of a collective."""
        place, op = leaf
        assert isinstance(op, StartOp)
        at = dict(place)
        if op.peers is not None:
            return place
        if op.receiver is not None or OPERATIONS[op.called].KIND.after == "root":
            at |= digits_over(self.mesh, op.axes.data, op.number("receiver"))
        return place_at(at)

    # --- operations ---------------------------------------------------------------------------

    def _statements(self, op: Operation, made: Sequence[SSAValue]) -> list[str]:
        match op:
            case CopyOp():
                return [self._copy(op, made)]
            case ComputeOp():
                return self._compute(op, made)
            case LocalCallOp():
                return self._call(op, made)
            case _:
                raise TypeError(f"there is no Python of {op.name}")

    def _copy(self, op: CopyOp, made: Sequence[SSAValue]) -> str:
        text, source, target = self.of(op.source), buffer_of(op.source), buffer_of(op.target)
        if origin_of(op.target)[0] not in made:
            return self.assigned(op.target, text)
        order = sorted(range(len(target.shape)), key=lambda dim: (-int(target.steps[dim]), dim))
        if order != sorted(order):
            text = self.permuted(text, order)
        in_order = source.is_contiguous and order == sorted(order)
        is_known = in_order or (source.is_fixed and target.is_fixed)
        text = self.copied(text, in_order=in_order if is_known else None)
        root = origin_of(op.target)[0]
        self.made.add(root)
        if buffer_of(root).shape != tuple(target.shape[dim] for dim in order):
            text = self.reshaped(text, buffer_of(root).shape)
        return f"{self.text_of[root]} = {text}"

    def _compute(self, op: ComputeOp, made: Sequence[SSAValue]) -> list[str]:
        if not op.outputs:
            seconds = self.names.seconds_of(op)
            self.needs |= {"time"} if seconds else set()
            return [f"time.sleep({seconds})"] if seconds else []
        [target], text = op.outputs, self._expression(op)
        if origin_of(target)[0] in made:
            return [self._new(target, text)]
        return [self.assigned(target, text)]

    def _expression(self, op: ComputeOp) -> str:
        """Return the result of a computation, in order and of its element type."""
        name, y = op.kernel.data, buffer_of(op.outputs[0])
        native = name in self.NATIVE
        inputs = [
            text if native or not buffer_of(x).dtype.is_short else self.cast(text, DType.F32)
            for x, text in ((x, self.of(x)) for x in op.inputs)
        ]
        dtype = DType.F32 if y.dtype.is_short and not native else y.dtype
        needs, step = set[str](), op.step(self.names.named)
        starts = [self.spelled(start.data) for start in op.starts or ()]
        form = self.STEP(step, self.mesh, inputs, needs, dtype, self.dtype(dtype), starts)
        text = self.EXPRESSIONS[name](form)
        self.needs |= needs.union(*(self.USES.get(need, ()) for need in needs))
        text = self.in_order(step, text)
        return text if dtype is y.dtype else self.cast(text, y.dtype)

    def _call(self, op: LocalCallOp, made: Sequence[SSAValue]) -> list[str]:
        arguments = ", ".join(self._argument(op, x) for x in op.inputs)
        call = f"self.{op.callee.string_value()}({arguments})"
        if not op.outputs:
            return [call]
        names, behind = list[str](), list[str]()
        for number, value in enumerate(op.outputs):
            root = origin_of(value)[0]
            if root in made and buffer_of(root).shape == buffer_of(value).shape:
                self.made.add(root)
                names.append(self.text_of[root])
            else:
                names.append(f"{self.made_name}_{number}")
                line = self._new if root in made else self.assigned
                behind.append(line(value, names[-1]))
        return [f"{', '.join(names)} = {call}", *behind]

    def _argument(self, op: LocalCallOp, value: SSAValue) -> str:
        """Return an argument of a call: None where a rank does not hold it."""
        held = set(self.places[origin_of(value)[0]]) - set(place_around(op))
        condition = self.names.at_place(place_at(dict(held)))
        return f"{self.of(value)} if {condition} else None" if condition else self.of(value)

    def _start(self, op: StartOp, made: Sequence[SSAValue], waits: bool) -> list[str]:
        """Return the statements of a collective, and keep its wait unless it waits at once."""
        axes, root = op.axes.data, origin_of(op.target)[0]
        x, y = (self.names.named(buffer_of(z)) for z in (op.source, op.target))
        new = [f"{self.text_of[root]} = {self.empty(buffer_of(root))}"] if root in made else []
        place = dict(digits_over(self.mesh, axes, op.number("root"))) if axes else {}
        sent = CollectiveCall(
            op=op,
            source=self.of(op.source),
            out=self.of(op.target),
            new=new,
            x=x,
            y=y,
            group=self.mesh.group_size(axes),
            root=self.names.at_place(place_at(place)),
            token="" if waits else self.tokens[op],
            work="sent" if waits else self.works[op],
        )
        self.made |= {*made}
        row = self.COLLECTIVES[op.called]
        done = row(self, sent)
        if not isinstance(done, Transfer):
            if not waits:
                text = f"the code waits for this {op.called} at once: nothing runs beside it"
                remark_at(op, text)
            return row(self, replace(sent, token=""))
        self.pending[op] = done.wait
        return done.start

    def transfer(
        self, s: CollectiveCall, before: Sequence[str], call: str, after: Sequence[str] = ()
    ) -> Transfer:
        """Return a collective that is one call.

        Args:
            before, after: the statements in front of the call, and behind its end.
        """
        if not s.token:
            return Transfer([*before, call, *after], [])
        return Transfer([*before, f"{s.token} = {call}"], [f"{s.token}.{self.WAIT}()", *after])

    WAIT: ClassVar[str] = "wait"
    """The method that waits for what was started."""

    def result_is(self, s: CollectiveCall, text: str, *, is_own: bool = False) -> str:
        """Return the statement that gives the result the elements of an array.

        Args:
            is_own: whether nothing else uses the array.
        """
        if not s.new:
            return self.assigned(s.op.target, text)
        return self._new(s.op.target, text if is_own else self.copied(text))

    def average(self, s: CollectiveCall) -> list[str]:
        """Return the division at the end of an avg."""
        return [f"{s.out} /= {s.group}"] if s.op.operation is Reduction.AVG else []

    @staticmethod
    def is_partial(op: StartOp) -> bool:
        """Return whether some ranks send nothing, in a send of several ranks."""
        return any(to == rank for rank, to in enumerate(op.receivers))

    def ends(self, op: StartOp) -> tuple[str, str]:
        """Return the conditions under which this rank sends, and receives, in a send."""
        sender, receiver = (
            self.names.at_place(place_at(digits_over(self.mesh, op.axes.data, op.number(name))))
            for name in ("sender", "receiver")
        )
        return sender, receiver

    # --- loops --------------------------------------------------------------------------------

    def _loop(self, leaf: RankOperation, made: Sequence[SSAValue]) -> list[Piece]:
        op = leaf.op
        assert isinstance(op, LocalRepeatOp)
        body, index = op.body.block, self.index[op]
        carried = 2 * len(op.begins)
        before: list[Piece] = []
        behind: list[Piece] = []
        within: list[Piece] = []
        pairs = zip(body.args[:carried:2], body.args[1:carried:2], strict=True)
        users = [
            (inner, set(used_by(inner.op)))
            for inner in leaves(body, leaf.place)
            if not isinstance(inner.op, AllocOp | FreeOp)
        ]
        for begin, end, (now, after) in zip(op.begins, op.ends, pairs, strict=True):
            place = self.places[origin_of(end)[0]]
            self.places |= {now: place, after: place}
            if origin_of(end)[0] not in made:
                line = self.assigned(end, self.text_of[now])
                behind.append((place, [*self.started([line]), f"del {self.text_of[now]}"]))
            elif buffer_of(origin_of(end)[0]).shape == buffer_of(end).shape:
                self.made.add(origin_of(end)[0])
                self.text_of[now] = self.text_of[origin_of(end)[0]]
            else:
                line = self._new(end, self.text_of[now])
                behind.append((place, [line, f"del {self.text_of[now]}"]))
            self.made.add(now)
            line = f"{self.text_of[now]} = {self.of(begin)}"
            before.append((place, self.started([line])))
            if self._may_share(users, now, after):
                self.text_of[after] = self.text_of[now]
            else:
                within.append((place, [f"{self.text_of[now]} = {self.text_of[after]}"]))
        for stack, row in zip(op.stacks, body.args[carried:], strict=True):
            self.places[row] = self.places[origin_of(stack)[0]]
            whole = self.of(stack)
            for text, name in self.starts.items():
                whole = re.sub(rf"\b{name}\b", f"({text})", whole)
            self.starts = {}
            self.text_of[row] = f"{whole}[{index}, ...]"
            self.made.add(row)
        statements = self._block(body, leaf.place, body.args[1:carried:2])
        statements += self._placed(within, leaf.place)
        numbers = f"range({op.count})"
        head = f"for {index} in {f'reversed({numbers})' if op.reverse is not None else numbers}:"
        lines = [head, *(f"    {line}" for line in statements or ["pass"])]
        return [*before, (leaf.place, lines), *behind]

    def _may_share(
        self, users: Sequence[tuple[RankOperation, set[SSAValue]]], now: SSAValue, after: SSAValue
    ) -> bool:
        """Return whether the next value of a carry may have the variable of the present one.

        Args:
            users: the operations of the body, each with the memory that it uses.
        """
        first = next((n for n, (_, used) in enumerate(users) if after in used), len(users))
        last = max((n for n, (_, used) in enumerate(users) if now in used), default=-1)
        if first == len(users) or not self._makes(users[first][0], after):
            return False
        assigns = isinstance(users[first][0].op, ComputeOp | CopyOp)
        return last < first or (last == first and assigns)


def inside(lines: Sequence[str]) -> list[str]:
    """Return statements inside of another one."""
    return [f"    {line}" for line in lines]


def only_if(condition: str, lines: Sequence[str]) -> list[str]:
    """Return statements for the ranks of a condition; without one, for all."""
    return [f"if {condition}:", *inside(lines)] if condition and lines else list(lines)


def _forgets(piece: Piece) -> bool:
    """Return whether statements only end the life of variables."""
    return all(line.startswith("del ") for line in piece[1])


def _with_joined_ends(lines: Sequence[str]) -> list[str]:
    """Return statements in which neighbouring deletions of variables are joined."""
    joined: list[str] = []
    for line in lines:
        if joined and line.startswith("del ") and joined[-1].startswith("del "):
            joined[-1] += f", {line.removeprefix('del ')}"
        else:
            joined.append(line)
    return joined
