"""Functions as they are written in ``.coll``.

The name of a record stands for its fields where the reader takes it for the same values.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from collir.dialects.machine import mesh_of
from collir.dialects.nested import CallOp, NestedOp, RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import DistTensorType
from collir.ir.alternatives import place_of
from collir.ir.auto import is_auto, is_implied
from collir.ir.diagnostics import DiagnosticError
from collir.ir.fields import Fields, Scope, groups, parted, records_of
from collir.ir.names import unique_names, written_result_names
from collir.ir.parameters import parameters_of
from collir.ir.roles import Role, argument_roles, result_roles, role_of
from collir.syntax.record_writer import Records, Value
from collir.syntax.step_writer import call_text, repeat_text, step_text

Groups = Sequence[Fields | None]
"""The fields of each record, and None for a single value."""


class FunctionWriter:
    """The writer of the functions of a module."""

    def __init__(self, module: ModuleOp, records: Records):
        self.records = records
        self.functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
        self.known: dict[FuncOp, _Function] = {}

    def text(self, function: FuncOp) -> str:
        """Return a function.

        Raises:
            DiagnosticError: it cannot be written in ``.coll``.
        """
        return self.named(function).text()

    def groups_of(self, call: CallOp) -> tuple[Groups, Groups]:
        """Return the operands and the results of a call that the reader takes for records."""
        if (function := self.functions.get(call.symbol)) is None:
            own = len(call.results) - len(call.sought)
            return [None] * len(call.operands), [None] * own
        callee = self.named(function)
        return callee.argument_groups, callee.result_groups

    def named(self, function: FuncOp) -> "_Function":
        """Return a function with the names of its values."""
        if function not in self.known:
            self.known[function] = _Function(function, self)
        return self.known[function]


class _Function:
    """A function with the names of its values.

    Attributes:
        argument_groups, result_groups: the operands and the results of a call that the reader takes
            for records.
    """

    def __init__(self, function: FuncOp, writer: FunctionWriter):
        self.function, self.writer = function, writer
        try:
            self.mesh = mesh_of(function)
        except VerifyException as error:
            raise DiagnosticError.at(function, f"{error}: use -t mlir") from error
        self.auto = is_auto(function)
        implied = [op for op in function.walk() if self._is_implied(op)]
        self.names = unique_names(function, {op.results[0] for op in implied})
        for op in implied:
            self.names[op.results[0]] = self.names[op.operands[0]]
        self._head()

    def _is_implied(self, op: Operation) -> bool:
        return self.auto and is_implied(op)

    # --- the signature ------------------------------------------------------------------------

    def _head(self) -> None:
        """Find what the signature and the return list."""
        function, types = self.function, self.function.function_type
        own = self._named(function.args)
        arguments = self._values(own, types.inputs, argument_roles(function))
        self.arguments = self._entries(arguments)
        self.argument_groups = _groups(self.arguments)
        last = function.body.block.last_op
        returned = self._named(last.operands if isinstance(last, ReturnOp) else ())
        named = written_result_names(function, self.names)
        own = [name or fallback for name, fallback in zip(named, returned, strict=True)]
        entries = self._entries(self._values(own, types.outputs, result_roles(function)))
        scope = Scope()
        scope.add_all(self._defined(function.body.block))
        self.results: list[str] = []
        self.returned: list[str] = []
        parts = parted(returned, [fields for _, fields, _ in entries])
        for (name, fields, text), mine in zip(entries, parts, strict=True):
            self.results.append(f"%{name}: {text}" if any(named) else text)
            self.returned += mine if fields is None else scope.named(mine, [fields])
        if not any(named):  # the reader takes the names of what is returned, if it may
            single = len(self.returned) == len(own)
            entries = [
                (str(n) if fields else name if single else "0", fields, text)
                for n, (name, fields, text) in enumerate(entries)
            ]
        self.result_groups = _groups(entries)

    def _values(
        self, names: Sequence[str], types: Iterable[Attribute], roles: Iterable[Role | None]
    ) -> list[Value]:
        values: list[Value] = []
        for name, x, role in zip(names, types, roles, strict=True):
            if not isinstance(x, DistTensorType):
                problem = f"{x} cannot be written in .coll: use -t mlir"
                raise DiagnosticError.at(self.function, problem)
            values.append((name, x.data, role))
        return values

    def _entries(self, values: Sequence[Value]) -> list[tuple[str, Fields | None, str]]:
        """Return what a signature lists for values: names, fields, and types with roles."""
        return self.writer.records.entries(values, self.mesh, parameters_of(self.function))

    def text(self) -> str:
        """Return the function."""
        function = self.function
        parameters = ", ".join(f"{name} = {x}" for name, x in parameters_of(function).items())
        arguments = ", ".join(f"%{name}: {text}" for name, _, text in self.arguments)
        head = f"func @{function.sym_name.data}{f'({parameters})' * bool(parameters)}({arguments})"
        if len(self.results) == 1:
            head += f" -> {self.results[0]}"
        elif self.results:
            head += f" -> ({', '.join(self.results)})"
        head += f" on @{self.mesh.name}{' auto' * self.auto}"
        if place := place_of(function):
            head += f" for @{place[0]} from {place[1]}"
        lines = self._block(function.body.block, Scope())
        return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}", ""])

    # --- statements ---------------------------------------------------------------------------

    def _named(self, values: Iterable[SSAValue]) -> list[str]:
        return [self.names[value] for value in values]

    def _defined(self, block: Block) -> Iterator[str]:
        """Yield the names that a block defines, in order."""
        yield from self._named(block.args)
        for op in block.ops:
            if not self._is_implied(op):
                yield from self._named(op.results)

    def _block(self, block: Block, scope: Scope, yielded: Sequence[str] = ()) -> list[str]:
        """Return the lines of a block.

        Args:
            scope: the records among the values of the block so far.
            yielded: the written form of the yielded values.
        """
        scope.add_all(self._named(block.args))
        lines: list[str] = []
        ops = [op for op in block.ops if not self._is_implied(op)]
        behind = 0  # the operation behind those of the last line
        for place, op in enumerate(ops):
            if place < behind:
                continue
            count = 1
            match op:
                case ReturnOp():
                    lines.append(f"return {_listed(self.returned)}".rstrip())
                case YieldOp():
                    lines.append(f"yield {_listed(yielded)}".rstrip())
                case DistOp():
                    line, count = self._steps(ops, place, scope)
                    lines.append(line)
                case CallOp():
                    lines.append(self._call(op, scope))
                case RepeatOp():
                    lines += self._repeat(op, scope)
                case _:
                    raise DiagnosticError.at(
                        op, f"{op.name} cannot be written in .coll: use -t mlir"
                    )
            behind = place + count
            for done in ops[place:behind]:
                scope.add_all(self._named(done.results))
        return lines

    def _steps(self, ops: Sequence[Operation], place: int, scope: Scope) -> tuple[str, int]:
        """Return the line of the step at a place, and the number of steps that it stands for: this
        one, or also the following ones that are the same on the other fields of a record."""
        first = ops[place]
        assert isinstance(first, DistOp)
        for record, _ in records_of(self.names[first.result]):
            if scope.fields(record) is not None:
                continue
            named = takewhile(bool, (self._field(op, record) for op in islice(ops, place, None)))
            fields = tuple(field for field in named if field)
            run = ops[place : place + len(fields)]
            on_fields = zip(run, fields, strict=True)
            lines = {self._step_on(op, fields, field, scope) for op, field in on_fields}
            if len(lines) == 1 and (line := lines.pop()) is not None:
                return f"%{record}{line}", len(run)
        return f"%{self.names[first.result]}{self._step(first, self._named(first.operands))}", 1

    def _field(self, op: Operation, record: str) -> str | None:
        """Return the field of a record that is the result of a step; None if it is none."""
        if not isinstance(op, DistOp):
            return None
        return dict(records_of(self.names[op.result])).get(record)

    def _step_on(self, op: Operation, fields: Fields, field: str, scope: Scope) -> str | None:
        """Return a step on a field as a step on the records with these fields; None if no operand
        is in a record."""
        names = self._named(op.operands)
        records = [name.removesuffix(f".{field}") for name in names]
        shown = [
            record if record != name and scope.fields(record) == fields else name
            for name, record in zip(names, records, strict=True)
        ]
        return None if shown == names else self._step(op, shown)

    def _step(self, op: Operation, operands: Sequence[str]) -> str:
        """Return a step behind the name of its result."""
        assert isinstance(op, DistOp)
        step = step_text(op, self.mesh, _listed(operands))
        return f"{_role_text(role_of(op.result), ':')} = {step}"

    def _call(self, op: CallOp, scope: Scope) -> str:
        arguments, results = self.writer.groups_of(op)
        operands = scope.named(self._named(op.operands), arguments)
        sought = self._named(op.operands[n] for n in op.sought)
        wrt = scope.whole(sought)
        targets = self._targets(op, [*results, *map(scope.fields, wrt)])
        if targets is None:
            targets, wrt = self._single_targets(op), sought
        return f"{', '.join(targets)} = {call_text(op, _listed(operands), _listed(wrt))}"

    def _repeat(self, op: RepeatOp, scope: Scope) -> list[str]:
        body, inside = op.body.block, Scope()
        inside.add_all(self._defined(body))
        last = body.last_op
        yielded = self._named(last.operands if isinstance(last, YieldOp) else ())
        whole = inside.whole(yielded)
        targets = self._targets(op, [inside.fields(name) for name in whole])
        if targets is None:
            targets, whole = self._single_targets(op), yielded
        arguments = iter(self._named(body.args))
        bindings = (
            self._bindings([*islice(arguments, len(operands))], operands, scope)
            for operands in (op.carried, op.sliced, op.invariant)
        )
        text = f"{', '.join(targets)} = {repeat_text(op, *map(', '.join, bindings))}"
        lines = self._block(body, Scope(), whole)
        return [f"{text} {{", *(f"  {line}" for line in lines), "}"]

    def _bindings(self, inside: list[str], operands: Iterable[SSAValue], scope: Scope) -> list[str]:
        """Return the names in the body of a loop with the operands that they stand for."""
        outside, bound = self._named(operands), list[str]()
        while outside:
            count, pair = 1, (inside[0], outside[0])
            for record, _ in records_of(outside[0]):
                fields = scope.fields(record)
                if fields is None or _fields_of(record, fields) != outside[: len(fields)]:
                    continue
                own = inside[0].removesuffix(f".{fields[0]}")
                if _fields_of(own, fields) == inside[: len(fields)]:
                    count, pair = len(fields), (own, record)
                    break
            bound.append(f"%{pair[0]} = %{pair[1]}")
            inside, outside = inside[count:], outside[count:]
        return bound

    def _targets(self, op: NestedOp, expected: Groups) -> list[str] | None:
        """Return the results of an operation, those of each record as one; None if a record cannot
        be named so."""
        targets: list[str] = []
        for fields, mine in zip(expected, parted(op.results, expected), strict=True):
            names, roles = self._named(mine), {role_of(value) for value in mine}
            record = names[0]
            if fields is not None:
                record = names[0].removesuffix(f".{fields[0]}")
                if names != _fields_of(record, fields) or len(roles) > 1:
                    return None
            targets.append(f"%{record}{_role_text(roles.pop(), ':')}")
        return targets

    def _single_targets(self, op: NestedOp) -> list[str]:
        return [f"%{self.names[x]}{_role_text(role_of(x), ':')}" for x in op.results]


def _groups(entries: Iterable[tuple[str, Fields | None, str]]) -> Groups:
    """Return the fields of each record that the reader finds in a signature."""
    names: list[str] = []
    records = set[str]()
    for name, fields, _ in entries:
        named = _fields_of(name, fields) if fields else [name]
        names += named
        records.update(named if fields else ())
    return groups(names, records)


def _fields_of(record: str, fields: Fields) -> list[str]:
    return [f"{record}.{field}" for field in fields]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"%{name}" for name in names)


def _role_text(role: Role | None, before: str = "") -> str:
    return f"{before} {role}" if role else ""
