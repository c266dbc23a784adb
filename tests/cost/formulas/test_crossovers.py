"""Tests of inequalities and of crossovers against numbers."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import sympy
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.formulas.alike import alike_functions
from collir.cost.formulas.compiled import compiled
from collir.cost.formulas.costs import CostFormulas, cost_formulas
from collir.cost.formulas.crossovers import Comparison, compared, comparisons, volume
from collir.cost.formulas.fastest import ParameterSpan, changes, plane
from collir.cost.formulas.function import CostFunction
from collir.cost.formulas.functions import Array, Expr, FormulaMissingError, Larger, symbol
from collir.cost.formulas.terms import text_of
from collir.cost.programs.memory import BufferUse
from collir.ir.diagnostics import DiagnosticError
from collir.targets.reports.compared import MOST, at_peak, at_same_values, compared_lines, pairs
from collir.targets.reports.compared import comparisons as comparisons_of
from collir.targets.reports.cost_symbolic import ranges_of
from collir.targets.reports.planes import plane_plot

STYLES = Path(__file__).parents[3] / "examples" / "models" / "styles.coll"
NAMES = ("data_parallel", "tensor_parallel", "sequence_parallel")
ZERO = STYLES.with_name("zero.coll")
AXES = ("data", "model")


@cache
def module_of_styles() -> ModuleOp:
    module = collir.parse(STYLES.read_text(encoding="utf-8"), functions=NAMES)
    return collir.run_passes(module, "propagate")


@cache
def styles() -> dict[str, CostFormulas]:
    module = module_of_styles()
    return {f.name: f for name in NAMES for f in cost_formulas(module, function=name)}


def holds(found: Comparison, values: dict[str, Array]) -> Array:
    """Return where the conditions of a comparison hold."""
    rows = len(next(iter(values.values())))
    true = np.full(rows, not found.is_equal)
    for some in found.conditions:
        sides = numbers([x.less - x.more for x in some], values)
        true &= np.any([side < 0 for side in sides], axis=0) if sides else False
    return true


def numbers(exprs: list[Expr], values: dict[str, Array]) -> list[Array]:
    return compiled(exprs, [*values])(values)


def random_values(seed: int, names: list[str], rows: int = 500) -> dict[str, Array]:
    random: Any = np.random.default_rng(seed)
    axes = {name: random.integers(2, 10, rows) for name in AXES}
    return {n: axes[n] * 1.0 if n in AXES else 2.0 ** random.integers(0, 17, rows) for n in names}


# --- inequalities -------------------------------------------------------------------------------


@pytest.mark.turns
@pytest.mark.parametrize("cost", ["sent", "memory", "flops"])
def test_layers_are_compared_as_numbers_are(cost: str) -> None:
    for found in comparisons([*styles().values()], cost, per="layers"):
        first, second = styles()[found.first], styles()[found.second]
        sizes = random_values(1, [*first.values])
        # One layer of very many: the rest does not count.
        many = {**sizes, "layers": np.full(500, 2.0**60)}
        left, right = numbers([volume(f, cost) for f in (first, second)], many)
        decided = abs(left - right) > 1e-6 * left
        less = (left < right)[decided]
        assert (holds(found, sizes)[decided] == less).all(), str(found)
        if not found.is_equal:
            assert less.any()
            assert less.all() == found.is_always


def test_tensor_parallelism_sends_less_up_to_a_number_of_words() -> None:
    data, tensor, sequence = (styles()[name] for name in NAMES)
    assert compared(tensor, data).where == "batch * seq < 3 * data * hidden"
    assert compared(tensor, data, data=2, model=4).where == "batch * seq < 6 * hidden"
    assert str(compared(tensor, sequence)) == (
        "@tensor_parallel always sends less than @sequence_parallel"
    )
    assert compared(sequence, tensor).where == "never"
    assert compared(data, data).is_equal
    assert str(compared(tensor, sequence, "sent", over="data", per="layers")) == (
        "@tensor_parallel and @sequence_parallel send the same"
    )


def test_terms_that_are_left_out_are_small() -> None:
    [[inequality]] = compared(styles()["tensor_parallel"], styles()["data_parallel"]).conditions
    assert inequality.left_out == -1
    sizes = {n: np.full(2, x) for n, x in styles()["data_parallel"].values.items()}
    sizes["seq"] = np.array([3071.0, 3073.0])
    left, right = numbers(
        [volume(styles()[name], "sent") for name in ("tensor_parallel", "data_parallel")], sizes
    )
    assert ((left < right) == [True, False]).all()


def made(expr: Expr, name: str) -> CostFormulas:
    """Return costs of which one is an expression."""
    formulas = styles()["data_parallel"]
    return replace(formulas, name=name, held={BufferUse.INPUTS: expr}, peaks=(expr,))


def random_sum(random: Random) -> Expr:
    names = ("batch", "seq", "hidden", *AXES)
    terms = [
        random.randint(1, 9) * sympy.Mul(*(symbol(n) ** random.randint(0, 2) for n in names[:3]))
        * sympy.Mul(*(symbol(n) ** random.randint(-1, 1) for n in AXES))
        for _ in range(random.randint(1, 3))
    ]  # fmt: skip
    return sympy.Add(*terms)


@pytest.mark.turns
@pytest.mark.parametrize("seed", range(12))
def test_sums_are_compared_as_numbers_are(seed: int) -> None:
    random = Random(seed)
    kind = random.choice(["held", "memory"])
    a, b = (
        random_sum(random)
        if kind == "held"
        else random_sum(random) + Larger(random_sum(random), random_sum(random))
        for _ in range(2)
    )
    found = compared(made(a, "a"), made(b, "b"), kind, batch=1)
    sizes = {**random_values(seed, ["seq", "hidden", *AXES]), "batch": np.ones(500)}
    left, right = numbers([a, b], sizes)
    # What is left out decides where both sides are close, and where sizes are small.
    is_exact = not any(x.left_out for some in found.conditions for x in some)
    large = (sizes["seq"] >= 2048) & (sizes["hidden"] >= 2048)
    decided = is_exact | (large & (abs(left - right) > 0.05 * right))
    assert (holds(found, sizes) == (left < right))[decided].all(), str(found)


@pytest.mark.turns
def test_comparisons_of_many_alternatives_are_refused() -> None:
    with pytest.raises(FormulaMissingError, match="inequalities"):
        compared(styles()["data_parallel"], styles()["tensor_parallel"], "memory")
    with pytest.raises(ValueError, match="costs are sent"):
        compared(styles()["data_parallel"], styles()["tensor_parallel"], "speed")


def test_text_is_for_people() -> None:
    assert text_of(3 * symbol("hidden") ** 2 * (symbol("@data") - 1)) == (
        "3 * hidden^2 * (data - 1)"
    )


# --- crossovers ---------------------------------------------------------------------------------


@cache
def functions() -> dict[str, CostFunction]:
    return {name: CostFunction(f) for name, f in styles().items()}


def test_volumes_cross_where_the_inequality_says() -> None:
    # batch * seq < 6 * hidden, in multiples of 4
    found = changes(functions(), ParameterSpan("seq", 64, 65536), "sent", batch=8)
    assert found == [(64, "tensor_parallel"), (3076, "data_parallel")]


def test_changes_of_times_are_those_of_numbers() -> None:
    found = changes(functions(), ParameterSpan("batch", 8, 256), seq=512)
    values = np.arange(8, 257, 8.0)
    times = {n: f(batch=values, seq=512).time for n, f in functions().items()}
    for (start, name), (end, _) in pairwise([*found, (257, "")]):
        inside = (values >= start) & (values < end)
        assert inside.any()
        assert all((times[name] <= other)[inside].all() for other in times.values())
    fewer = changes(functions(), ParameterSpan("batch", 8, 256), margin=0.5, seq=512)
    assert len(fewer) == 1


def test_a_plane_has_the_least_cost_everywhere() -> None:
    found = plane(
        functions(), ParameterSpan("seq", 64, 16384), ParameterSpan("hidden", 256, 8192), "sent", 12
    )
    assert found.best.shape == (len(found.ys), len(found.xs))
    less = 8 * found.xs[None, :] < 6 * found.ys[:, None]
    decided = 8 * found.xs[None, :] != 6 * found.ys[:, None]
    assert ((found.best == 1) == less)[decided].all()


def test_axes_have_powers_of_two() -> None:
    found = plane(
        functions(),
        ParameterSpan("seq", 64, 4096),
        ParameterSpan("model", 1, 8),
        "sent",
        6,
        batch=64,
    )
    assert set(found.ys) <= {1, 2, 4, 8}


def test_values_that_no_function_can_have_are_an_error() -> None:
    with pytest.raises(ValueError, match="no value of batch from 1 to 7 fits"):
        changes(functions(), ParameterSpan("batch", 1, 7))


def test_a_plane_is_drawn() -> None:
    spans = ParameterSpan("seq", 64, 4096), ParameterSpan("hidden", 256, 8192)
    text = plane_plot(functions(), *spans, "sent", 6, batch=16)
    assert text.startswith("<?xml")
    assert "batch = 16, heads = 32, layers = 4" in text
    assert "tensor_parallel" in text
    assert "sequence_parallel" not in text  # it is nowhere the best


def test_a_plot_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "collir.targets.reports.plots", None)
    with pytest.raises(DiagnosticError, match=r"pip install 'collir\[plot\]'"):
        plane_plot(functions(), ParameterSpan("seq", 64, 4096), ParameterSpan("hidden", 256, 8192))


# --- the section of a report --------------------------------------------------------------------


def section(where: str = "", per: str = "") -> list[str]:
    ranges = ranges_of(where)
    return [line.strip() for line in compared_lines([*styles().values()], ranges, per)]


def statements(lines: list[str]) -> list[tuple[str, list[str], str, str]]:
    """Return the verbs, the functions with less and with more, and the conditions of lines."""
    found: list[tuple[str, list[str], str, str]] = []
    for line in lines:
        if match := re.match(r"@(\w+) (always )?(\D*?) than ([@\w, ]+?)(?: for (.*))?$", line):
            first, _, verb, more, condition = match.groups()
            found += [(verb, [first, name[1:]], "<", condition) for name in more.split(", ")]
        elif match := re.match(r"(@.*?) (send|need) the same", line):
            names = re.findall(r"@(\w+)", match[1])
            verb = {"send": "sends less", "need": "needs less memory"}[match[2]]
            found += [(verb, [names[0], name], "=", "") for name in names[1:]]
    return found


def sizes_near(values: Mapping[str, int], seed: int) -> dict[str, Array]:
    random: Any = np.random.default_rng(seed)
    return {
        n: random.integers(2, 10, 500) * 1.0
        if n in AXES
        else x * 2.0 ** random.integers(-2, 3, 500)
        for n, x in values.items()
    }


def test_lines_of_a_section_are_those_of_numbers() -> None:
    found = statements(section())
    assert {verb for verb, *_ in found} == {"sends less", "needs less memory"}
    assert len(found) == 6  # three pairs, two costs
    for number, (verb, names, sign, condition) in enumerate(found):
        pair = [styles()[name] for name in names]
        sizes = sizes_near(styles()["data_parallel"].values, number)
        cost = "sent" if verb == "sends less" else "memory"
        left, right = numbers([volume(f, cost) for f in pair], sizes)
        is_decided = abs(left - right) > 0.01 * left
        if cost == "memory":
            shared = at_same_values([styles()["data_parallel"], *pair], {})[1:]
            peaks = numbers([volume(at_peak(f), cost) for f in shared], sizes)
            is_decided &= (peaks[0] == left) & (peaks[1] == right)
        assert is_decided.sum() > 50 or sign == "="
        if sign == "=":
            assert np.allclose(left, right)
            continue
        text = condition.replace("^", "**") if condition else "True"
        holds_there = np.broadcast_to(eval(text, {}, sizes), left.shape)
        assert (holds_there == (left < right))[is_decided].all(), (names, condition)


def test_a_section_has_the_fastest_and_given_values() -> None:
    lines = section("seq=64..65536,data=2,model=4,batch=16")
    assert (
        lines[1]
        == "batch = 16, seq = 2048, hidden = 4096, heads = 32, layers = 4, data = 2, model = 4"
    )
    assert any(re.match(r"Fastest along seq = 64..65536, .*: @\w+ from 64", x) for x in lines)
    assert "@data_parallel sends less than @tensor_parallel for 3 * hidden < 8 * seq" in lines
    times = {name: function(batch=16).time[0] for name, function in functions().items()}
    table = [line.split()[0][1:] for line in lines[3:6]]
    assert table == sorted(times, key=lambda name: times[name])


def test_sizes_that_a_function_cannot_have_are_a_dash() -> None:
    lines = section("batch=2")
    [row] = [line for line in lines if line.startswith("@data_parallel ")][:1]
    assert row.split() == ["@data_parallel", "-", "-", "-"]
    assert lines.index(row) == 5  # the last one


def test_growth_is_compared() -> None:
    lines = section(per="layers")
    assert "Memory of a device, as far as it grows with layers" in lines
    assert (
        "@tensor_parallel needs less memory than @data_parallel for batch * seq < 6 * data * hidden"
        in lines
    )


def test_too_many_inequalities_are_said() -> None:
    a, b = (random_larger(Random(seed), name) for seed, name in ((1, "a"), (2, "b")))
    [line] = pairs([a, b], "memory", "", {})
    assert "inequalities" in line


def random_larger(random: Random, name: str) -> CostFormulas:
    return made(Larger(*(random_sum(random) for _ in range(6))), name)


def test_functions_without_formulas_are_left_out() -> None:
    known = {name: f for name, f in styles().items() if name != "data_parallel"}
    [text] = comparisons_of(module_of_styles(), known, {})
    assert text.endswith("\n  @data_parallel is left out, as it has no formulas\n")
    assert not comparisons_of(module_of_styles(), {"data_parallel": styles()["data_parallel"]}, {})


def test_strategies_have_the_same_inputs() -> None:
    zero = collir.parse(ZERO)
    assert alike_functions(zero) == [["data_parallel", "zero_1", "zero_2", "zero_3"]]
    assert alike_functions(module_of_styles()) == [[*NAMES]]


def test_more_than_some_strategies_are_not_compared_in_pairs() -> None:
    many = [replace(styles()["data_parallel"], name=f"f{n}") for n in range(MOST + 1)]
    *_, last = compared_lines(many, {})
    assert "--function" in last
