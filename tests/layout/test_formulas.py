"""Formulas have one normal form, and sizes are integers that carry it."""

import contextlib
import copy
import math
import pickle
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_formula, random_parameters

from collir.layout import Dim, DistType, DType
from collir.layout.formulas import MAX_WEIGHT, Formula, FormulaError, formula_of_text
from collir.layout.sizes import (
    OpenSize,
    ShardedSize,
    Size,
    formula_of,
    same_size,
    size_at,
    sized,
    written,
)
from collir.layout.types import without_formulas

NAMES = ("a", "b", "c")


def random_expression(rng: random.Random, depth: int) -> str:
    """Return a formula as text, with brackets around every part."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([*NAMES, str(rng.randint(0, 9))])
    if rng.random() < 0.1:
        return f"(-{random_expression(rng, depth - 1)})"
    left, right = (random_expression(rng, depth - 1) for _ in range(2))
    return f"({left} {rng.choice('+-**/')} {right})"


def value_in_python(text: str, values: dict[str, int]) -> Fraction:
    """Return the value of a formula that Python itself computes, with fractions."""
    numbers = "".join(f"F({c})" if c.isdigit() else c for c in text)
    return Fraction(eval(numbers, {"F": Fraction, **{n: Fraction(v) for n, v in values.items()}}))


@given(rng=RANDOM)
@settings(max_examples=120)
def test_a_formula_has_the_value_of_its_text(rng: random.Random) -> None:
    text = random_expression(rng, 4)
    try:
        formula = formula_of_text(text)
    except FormulaError:
        return  # it is too long, or divides by a formula that is 0
    assert formula_of_text(str(formula)) == formula
    for _ in range(5):
        values = {name: rng.randint(-3, 9) for name in NAMES}
        try:
            expected = value_in_python(text, values)
            assert formula.value(values) == expected
        except (ZeroDivisionError, FormulaError):
            continue  # a quotient that is cancelled may divide by 0 at a value


def test_the_longest_formula_has_as_many_parameters_and_numbers_as_it_may() -> None:
    longest = " * ".join(["a"] * (MAX_WEIGHT - 1))  # its factor 1 counts too
    assert formula_of_text(longest).weight == MAX_WEIGHT
    with pytest.raises(FormulaError, match=f"more than {MAX_WEIGHT}"):
        formula_of_text(f"{longest} * a")


@given(rng=RANDOM)
@settings(max_examples=60)
def test_equal_formulas_are_one_formula(rng: random.Random) -> None:
    texts = [random_expression(rng, 1).replace("/", "+") for _ in range(3)]
    terms = [formula_of_text(text) for text in texts]
    a, b, c = (term if len(term.terms) == 1 else Formula.parameter("a") for term in terms)
    assert a * b == b * a
    assert a + b - b == a
    assert (a * b) / b == a
    assert a / b * b == a
    assert a / b / c == a / (b * c)
    assert a * (b + c) == a * b + a * c
    assert hash(a * b) == hash(b * a)


@given(rng=RANDOM)
@settings(max_examples=120)
def test_sizes_compute_as_integers_do(rng: random.Random) -> None:
    values = random_parameters(rng)
    sizes = [random_formula(rng, rng.randint(1, 60), values) for _ in range(4)]
    for _ in range(6):
        x, y = rng.choice(sizes), rng.choice([*sizes, rng.randint(-3, 9)])
        operation = rng.choice(["+", "-", "*", "//", "%", "/", "<", "**", "&", "divmod"])
        text = "divmod(x, y)" if operation == "divmod" else f"x {operation} y"
        if not y and operation in ("//", "%", "/", "divmod", "**"):
            continue
        if operation == "**" and not 0 <= y < 4:
            continue
        result = eval(text, {"x": x, "y": y})
        number = int(result) if isinstance(result, Size) else result
        assert number == eval(text, {"x": int(x), "y": int(y)})
        exact = operation in ("+", "-", "*") or (operation == "//" and int(x) % int(y) == 0)
        if isinstance(result, Size):
            assert exact
            assert size_at(result.formula, values) == result
            sizes.append(result)
        elif exact:  # the formula is lost only where it is a constant, or too long
            both = [formula_of(x), formula_of(y)]
            python = {"+": "__add__", "-": "__sub__", "*": "__mul__", "//": "__truediv__"}
            with contextlib.suppress(FormulaError):
                assert not getattr(both[0], python[operation])(both[1]).parameters


def test_a_size_computes_as_its_integer() -> None:
    size = Size(8, Formula.parameter("batch"))
    assert (int(size), str(size), f"{size:3}", repr(size)) == (8, "8", "  8", "8")
    assert np.zeros((size, 2)).shape == (8, 2)
    assert written(size) == "batch"
    assert [written(math.prod([size, 2, size])), written(sum([size, 1]))] == [
        "2 * batch * batch",
        "batch + 1",
    ]
    for twin in (copy.copy(size), copy.deepcopy(size), pickle.loads(pickle.dumps(size))):
        assert twin == size
        assert twin.formula == size.formula
    assert type(sized(8, Formula.constant(8))) is int
    assert type(size - size) is int


def test_sizes_are_equal_by_their_formulas() -> None:
    batch, open_batch = (kind(8, Formula.parameter("batch")) for kind in (Size, OpenSize))
    rows = Size(8, Formula.parameter("rows"))
    assert batch == Size(8, Formula.parameter("batch"))
    assert len({batch, open_batch, rows, 8}) == 4
    assert {8.0: "float"}.get(batch) is None
    assert same_size(batch, rows)
    assert same_size((batch, 4), (8, 4))
    assert not same_size((batch, 4), (8,))
    assert not same_size(open_batch, batch)
    assert same_size(open_batch, OpenSize(8, Formula.parameter("batch")))


def test_open_sizes_of_axes_alone_agree_by_value() -> None:
    data, model = (ShardedSize(4, Formula.parameter(name)) for name in ("@data", "@model"))
    assert data != model
    assert same_size(data, model)
    assert same_size(data, 4)
    assert not same_size(data, ShardedSize(4, Formula.parameter("batch")))


def test_a_size_is_equal_to_its_number_but_no_key_is() -> None:
    size, other = sized(8, Formula.parameter("n")), sized(8, Formula.parameter("m"))
    assert size == 8 and size == 8 and size != 9 and (size, 4) == (8, 4)
    assert size != other
    assert {8: "number"}.get(size) is None and {size: "formula"}.get(8) is None


def test_types_are_equal_by_their_formulas() -> None:
    formula = DistType(DType.F32, (Dim(Size(8, Formula.parameter("batch"))), Dim(4)))
    plain = DistType.make(DType.F32, [8, 4])
    assert formula != plain
    assert formula.agrees(plain)
    assert not formula.agrees(DistType.make(DType.F32, [8, 5]))
    assert not formula.agrees(DistType.make(DType.F16, [8, 4]))
    assert (str(formula), formula.text(formulas=True)) == ("f32[8, 4]", "f32[batch, 4]")
    assert without_formulas(formula) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("4 * hidden / heads", "4 * hidden / heads"),
        ("(a + b) * (a - b)", "a * a - b * b"),
        ("1 - batch", "1 - batch"),
        ("x / (2 * a + 2 * b) * (a + b)", "x / 2"),
        ("8 / (b - 8)", "8 / (b - 8)"),
        ("1 / (1 / (a + b))", "a + b"),
        ("seq * batch * 3 + 2", "3 * batch * seq + 2"),
        ("-a - 2", "-a - 2"),
        ("a - a", "0"),
    ],
)
def test_texts_are_simple(text: str, shown: str) -> None:
    assert str(formula_of_text(text)) == shown


@pytest.mark.parametrize("text", ["", "a +", "(a", "a b", "4 @ b", "1.5 * a", "a ** b", "/ a", "é"])
def test_other_texts_are_no_formulas(text: str) -> None:
    with pytest.raises(FormulaError):
        formula_of_text(text)


def test_sizes_are_below_their_limit() -> None:
    n = Formula.parameter("n")
    assert same_size(size_at(n, {"n": 2**63 - 1}), 2**63 - 1)
    with pytest.raises(FormulaError, match="sizes are below"):
        size_at(n, {"n": 2**63})
