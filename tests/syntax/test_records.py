"""Records are what their fields are, whoever writes these out, and survive being printed."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs.collectives import RANDOM, random_module
from xdsl.dialects.builtin import ModuleOp

from collir.dialects.records import RecordOp
from collir.ir.diagnostics import Sources
from collir.ir.names import set_name
from collir.ir.verification import verify
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read
from collir.syntax.writer import settle_names, write
from collir.tools.api import context

MACHINE = """machine @c { level gpu[4] { port = 270 GB/s, latency = 3 us } }
mesh @m on @c { data = gpu:2, model = gpu:2 }
"""

GENERIC = """
func @mixed(%x: float[...], %y: float[...], %rate: float[...]) -> (float[...], float[...]) on any {
  %p = mul %x, %rate
  %q = sub %y, %p
  return %p, %q
}
func @all(%x: float{...}, %y: float[...]) -> (float{...}, float[...]) on any {
  %squares = mul %x, %x
  %sums = sum %squares dims [...]
  %sum = fold add %sums
  %z = mul %x, %y
  return %z, %sum
}
"""


@dataclass
class Record:
    """A record: the text of its declaration, and its fields with their dims where ``n`` is its
    size."""

    name: str
    text: str
    fields: dict[str, list[str]]


@dataclass
class Program:
    """A function twice: with records, and with all of their fields.

    Attributes:
        values: the records that are defined, each with its record and how often it is stacked.
    """

    rng: random.Random
    records: list[Record]
    short: list[str] = field(default_factory=list)
    full: list[str] = field(default_factory=list)
    values: dict[str, Record] = field(default_factory=dict)

    def each(self, value: str) -> list[str]:
        """Return the fields of a value."""
        return [f"%{value}.{name}" for name in self.values[value].fields]

    def new(self, like: Record) -> str:
        """Return a new value that is a record."""
        name = f"r{len(self.values)}"
        self.values[name] = like
        return name


def random_records(rng: random.Random) -> list[Record]:
    """Return records, of which each may have those before it as fields."""
    records: list[Record] = []
    for number in range(rng.randint(1, 4)):
        fields: dict[str, list[str]] = {}
        written: list[str] = []
        for index in range(rng.randint(1, 3)):
            name = f"{rng.choice('abc')}{index}{rng.choice(['', '', '.0.weight'])}"
            if records and rng.random() < 0.4:
                inner = rng.choice(records)
                stacked = rng.choice(["", "[2]", "[n]"])
                scaled = rng.choice(["", "(n = 2 * n)"])
                written.append(f"{name}: @{inner.name}{scaled}{stacked}")
                for inside, dims in inner.fields.items():
                    own = [d.replace("n", "(2 * n)") if scaled else d for d in dims]
                    fields[f"{name}.{inside}"] = [*([stacked[1:-1]] if stacked else []), *own]
            else:
                dims = rng.choice([["n"], ["n", "3"], ["2 * n"], ["4", "n"]])
                fields[name] = dims
                written.append(f"{name}: float[{', '.join(dims)}]")
        text = f"record @t{number} {{ {', '.join(written)} }}"
        records.append(Record(f"t{number}", text, fields))
    return records


def random_statement(rng: random.Random, program: Program) -> None:
    """Add a statement to a program."""
    x = rng.choice(list(program.values))
    like = program.values[x]
    same = [name for name, record in program.values.items() if record is like]
    y = rng.choice(same)
    match rng.choice(["step", "scalar", "constant", "mapped", "opened", "loop", "call"]):
        case "step" | "scalar" | "constant" as kind:
            to = program.new(like)
            line = {
                "step": f"%{to}<> = add %{x}<>, %{y}<>",
                "scalar": f"%{to}<>: gradient = mul %{x}<>, %one",
                "constant": f"%{to}<> = constant value 2 to %{x}<>",
            }[kind]
            program.short.append(line.replace("<>", ""))
            program.full += (line.replace("<>", f".{name}") for name in like.fields)
        case "mapped":
            a, b = program.new(like), program.new(like)
            program.short.append(f"%{a}, %{b} = call @mixed(%{x}, %{y}, %one)")
            for name in like.fields:
                called = f"call @mixed(%{x}.{name}, %{y}.{name}, %one)"
                program.full.append(f"%{a}.{name}, %{b}.{name} = {called}")
        case "opened":
            to = program.new(like)
            program.short.append(f"%{to}, %s{to} = call @all(%{x}, %one)")
            program.full.append(f"%{to}, %s{to} = call @all(%{x}, %one)")
        case "loop":
            a, b = program.new(like), program.new(like)
            head = f"repeat 2 carry(%u = %{x}) with(%v = %{y})"
            program.short += [
                f"%{a} = {head} {{",
                "  %w = add %u, %v",
                "  yield %w",
                "}",
                f"%{b} = add %{a}, %{a}",
            ]
            pairs = [
                ", ".join(f"%{to}.{n} = %{of}.{n}" for n in like.fields)
                for to, of in (("u", x), ("v", y))
            ]
            program.full += [
                f"{', '.join(program.each(a))} = repeat 2 carry({pairs[0]}) with({pairs[1]}) {{",
                *(f"  %w.{n} = add %u.{n}, %v.{n}" for n in like.fields),
                f"  yield {', '.join(f'%w.{n}' for n in like.fields)}",
                "}",
                *(f"%{b}.{n} = add %{a}.{n}, %{a}.{n}" for n in like.fields),
            ]
        case _:
            to = program.new(like)
            program.short.append(f"%{to} = call @of_{like.name}(n = 2)(%{x}, %one)")
            called = f"call @of_{like.name}(n = 2)({', '.join(program.each(x))}, %one)"
            program.full.append(f"{', '.join(program.each(to))} = {called}")


def random_text(rng: random.Random) -> tuple[str, str]:
    """Return a program with records, and the same without."""
    records = random_records(rng)
    program = Program(rng, records)
    heads: list[list[str]] = [[], []]
    for record in records:
        x = program.new(record)
        types = [f"f32[{', '.join(dims)}]" for dims in record.fields.values()]
        pairs = list(zip(record.fields, types, strict=True))
        heads[0].append(
            f"func @of_{record.name}(n = 2)(%w: f32 @{record.name}, %c: f32[]) -> "
            f"f32 @{record.name} on @m {{\n  %y = mul %w, %c\n  return %y\n}}"
        )
        lines = [f"  %y.{name} = mul %w.{name}, %c" for name in record.fields]
        arguments = ", ".join(f"%w.{name}: {x}" for name, x in pairs)
        results = ", ".join(f"%y.{name}: {x}" for name, x in pairs)
        returned = ", ".join(f"%y.{name}" for name in record.fields)
        heads[1].append(
            f"func @of_{record.name}(n = 2)({arguments}, %c: f32[]) -> ({results}) on @m {{\n"
            + "\n".join([*lines, f"  return {returned}", "}"])
        )
        assert x in program.values
    arguments = list(program.values)
    for _ in range(rng.randint(1, 6)):
        random_statement(rng, program)
    last = rng.choice([x for x in program.values if x not in arguments] or arguments)
    like = program.values[last]
    short = [f"%{x}: f32 @{program.values[x].name}" for x in arguments]
    full = [
        f"%{x}.{name}: f32[{', '.join(dims)}]"
        for x in arguments
        for name, dims in program.values[x].fields.items()
    ]
    results = ", ".join(f"f32[{', '.join(dims)}]" for dims in like.fields.values())
    texts = (
        (
            [*(record.text for record in records), GENERIC, *heads[0]],
            f"f32 @{like.name}",
            f"%{last}",
            short,
            program.short,
        ),
        (
            [GENERIC, *heads[1]],
            f"({results})",
            ", ".join(program.each(last)),
            full,
            program.full,
        ),
    )
    whole: list[str] = []
    for declared, promised, returned, given_, lines in texts:
        head = f"func @main(n = 2)({', '.join([*given_, '%one: f32[]'])}) -> {promised} on @m {{"
        body = [f"  {line}" for line in [*lines, f"return {returned}"]]
        whole.append("\n".join([MACHINE, *declared, head, *body, "}"]))
    return whole[0], whole[1]


def without_records(module: ModuleOp) -> ModuleOp:
    """Return a module without its declarations of records."""
    module = module.clone()
    for op in list(module.ops):
        if isinstance(op, RecordOp):
            op.detach()
    return module


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=40)
def test_a_record_is_its_fields(rng: random.Random) -> None:
    short, full = random_text(rng)
    module = read(short)
    verify(module)
    assert write(without_records(module)) == write(read(full)), short


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=40)
def test_what_is_printed_is_read_again(rng: random.Random) -> None:
    module = read(random_text(rng)[0])
    settle_names(module)
    text = write(module)
    again = read(text)
    assert write(again) == text, text
    settle_names(again)
    assert again.is_structurally_equivalent(module), text
    reread = read_mlir(context(), str(module), "<mlir>", Sources())
    verify(reread)
    assert write(reread) == text


@pytest.mark.turns
@given(rng=RANDOM, steps=st.integers(2, 10))
@settings(max_examples=30)
def test_names_with_dots_are_read_again(rng: random.Random, steps: int) -> None:
    module = random_module(rng, 3, steps, weights=0.3)
    names = ["w", "w.a", "w.b", "w.b.c", "v.a", "v.b", "v", "v.b.c", "w_1", "w_1.a", None]
    for op in module.walk():
        values = [*op.results, *(x for r in op.regions for b in r.blocks for x in b.args)]
        for value in values:
            set_name(value, rng.choice(names))
    settle_names(module)
    text = write(module)
    again = read(text)
    assert write(again) == text, text
    settle_names(again)
    assert again.is_structurally_equivalent(module), text
