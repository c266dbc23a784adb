"""The commands that explain prints can be pasted, and make programs as much faster as it says."""

import re
import shlex
from pathlib import Path

import pytest
from support.harness.seeds import fresh, some

import collir
from collir.targets.reports.explain import LISTED, explanation
from collir.targets.reports.summary import between_text, sentences
from collir.tools.collopt import main

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.coll"))
SIZES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def titles(text: str) -> dict[str, float]:
    """Return the seconds of every function, from titles as ``@f on @m (@c, 8 devices): 12 us``."""
    matches = re.findall(r"^@(\w+) on @.*?: ([\d.]+) (ns|us|ms|s)\b", text, re.MULTILINE)
    return {name: float(number) * SIZES[unit] for name, number, unit in matches}


@pytest.mark.turns
@pytest.mark.parametrize("before", ["", "place"])
@pytest.mark.parametrize("example", some(EXAMPLES, 3), ids=lambda path: path.stem)
def test_what_explain_prints_can_be_pasted_and_helps(
    example: Path, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = ["-p", before] if before else []
    if main([str(example), *passes, "-t", "explain{model=alpha-beta}"]):
        assert not before or "placed" not in capsys.readouterr().err
        return  # some function has no cost, and a diagnostic says so
    text = capsys.readouterr().out
    times = titles(text)
    assert "1.00x" not in re.sub(r"bound .*", "", text)
    known: dict[str, dict[str, float]] = {}
    for block in re.split(r"\n(?=@)", text):
        [(name, _), *_] = titles(block).items()
        rows = re.findall(r"([\d.]+)x\n +collopt (.*)", block)
        assert len(rows) == block.count("collopt ")
        for factor, command in rows:
            if command not in known:
                assert main(shlex.split(command)) == 0
                known[command] = titles(capsys.readouterr().out)
            helps = times[name] / known[command][name]
            assert helps > 1.005, (command, name)
            assert helps == pytest.approx(float(factor), rel=0.02), (command, name)


def test_steps_that_take_next_to_no_time_are_summed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the rows of a path add up to the time, where some of its steps have one row."""
    rng = fresh("small steps")
    steps, last = ["%r0 = all_reduce %large over data"], "%g"
    large = {"%r0"}
    for number in range(1, 41):
        if rng.random() < 0.05:
            steps.append(f"%l{number} = all_reduce %large over data")
            large.add(f"%l{number}")
        steps += [f"%s{number} = slice {last} over data dim 0",
                  f"%g{number} = all_gather %s{number} over data dim 0"]  # fmt: skip
        last = f"%g{number}"
    file = tmp_path / "steps.coll"
    file.write_text(
        "machine @box { level node[2] { port = 1 GB/s, latency = 5 us } }\n"
        "mesh @m on @box { data = node:2 }\n"
        "func @f(%large: f32[50000000] partial(sum: data), %g: f32[8]) -> (f32[50000000], f32[8]) "
        "on @m {\n" + "\n".join(steps) + f"\nreturn %r0, {last}\n}}\n"
    )
    assert main([str(file), "-t", "explain{model=alpha-beta}"]) == 0
    text = capsys.readouterr().out
    path = text.partition("critical path:\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^ +(\S+)(.*?) +([\d.]+) (ns|us|ms|s) +\d+%", path, re.MULTILINE)
    assert len(large) >= LISTED or large <= {name for name, *_ in rows}
    more = sum(int(number) for number in re.findall(r"\.\.\. and (\d+) more", path))
    assert more + sum("..." not in name for name, *_ in rows) == 40 + len(large)
    assert len(rows) <= LISTED
    total = sum(float(number) * SIZES[unit] for *_, number, unit in rows)
    assert total == pytest.approx(titles(text)["f"], rel=0.02)


def test_ten_rows_sum_up_a_path_of_many_steps_that_take_as_long() -> None:
    steps = "\n".join(f"%g{n + 1} = scale %g{n} by 2" for n in range(40))
    small = "\n".join(f"%s{n + 1} = all_reduce %p{n} over data" for n in range(40))
    parts = ", ".join(f"%p{n}: f32[2] partial(sum: data)" for n in range(40))
    text = (
        "machine @box { device { memory = 1 GB @ 1 GB/s } "
        "level node[2] { port = 1 GB/s, latency = 1 us } }\n"
        "mesh @m on @box { data = node:2 }\n"
        f"func @f(%g0: f32[1000], {parts}) -> f32[1000] on @m {{\n{steps}\n{small}\n"
        "return %g40\n}\n"
    )
    [simulation] = collir.simulate(collir.parse(text))
    lines = explanation(simulation, [], "", "simulate")
    rows = lines[lines.index("  critical path:") + 1 :]
    assert len(rows) == LISTED
    shown = [line for line in rows if "..." not in line]
    [more] = [int(n) for n in re.findall(r"\.\.\. and (\d+) more", "\n".join(rows))]
    assert len(shown) + more == 80


def test_sentences_come_first_and_say_between_what_a_collective_sends() -> None:
    text = """
machine @box {
  level node[2] { port = 1 GB/s, latency = 20 us }
  level switch[2] { port = 10 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2, model = switch:2 }
func @f(%g: f32[8] partial(sum: data), %h: f32[8] partial(sum: model))
    -> (f32[8], f32[8]) on @m {
  %r = all_reduce %g over data
  %s = all_reduce %h over model
  return %r, %s
}
"""
    [simulation] = collir.simulate(collir.parse(text))
    _, waited, _ = sentences(simulation)
    assert "% for all_reduce over data between nodes, " in waited
    assert waited.endswith("% for all_reduce over model between switches.")
    lines = collir.emit(collir.parse(text), "explain").splitlines()
    end = lines.index("  where its time goes:")
    assert " ".join("".join(lines[1:end]).split()) == " ".join(sentences(simulation))
    assert [between_text(level) for level in ("", "gpus", "box")] == [
        "inside devices",
        "between gpus",
        "between boxes",
    ]
