"""Passes, targets and values of options, right and wrong."""

import argparse
import dataclasses
import random
import re

from support.tools.mutations import NUMBERS

from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools import collir, collrun

VALUES = ["", "-1", "0", "1", "2", "1e308", "nan", "inf", "0.1", str(2**63), str(10**19),
          "9" * 5000,
          "x", "é", "@m", "a=b", "=", "out", "true", "none", "a,b", "{}", '"', "\x00", "/", ".",
          "-",
          "--", "auto", "p2", "nccl", "cheapest", "ring", "hardware", "30 s", "2 GB", "%s",
          "missing",
          "batch", "data", "f32", "xyz.json"]  # fmt: skip
_PLAIN_VALUE = re.compile(r"[\w./:-]+|\"[^\"]*\"")


def _option(rng: random.Random, field: "dataclasses.Field[object]", text: str) -> str:
    """Return an option of a pass or target, mostly of its type."""
    kind = str(field.type)
    names = sorted(set(re.findall(r"[@%]?\b[a-z_]\w*", text))) or ["x"]
    values = {
        "model": ["alpha-beta", "p2", "nccl", "auto"],
        "algorithm": ["cheapest", "runtime", "ring", "tree", "auto"],
        "order": ["written", "hardware", "mesh", "auto"],
        "limit": ["1", "2", "1"],
        "strategy": ["flat", "ar-per-level", "rs-ar-ag", "reduce-ar-bcast", "x"],
        "sizes": [f'"{rng.choice(names)}={rng.choice(NUMBERS)}"'],
        "weights": [f'"{rng.choice(names)}:{rng.choice(NUMBERS)}"'],
        "over": names, "of": names, "wrt": names, "loop": names, "function": names, "mesh": names,
        "against": ["in.coll", "out", "missing", '""'], "level": names,
        "dtype": ["f32", "bf16", "f64", "i32"], "into": ["2,2", "2", "4,2,1", "0", "-1", "3,5"],
        "method": ["shortest", "exact", "p2", "x"], "rule": ["ddp", "size", "x", ""],
        "workers": ["1", "1", "0", "-1", "x"], "memory": ["0", "-1", "1", "0.5", "1e9",
        str(10**30)],
    }.get(field.name, NUMBERS if "int" in kind else ["true",
    "false"] if "bool" in kind else names)  # fmt: skip
    value = rng.choice(values) if rng.random() < 0.85 else rng.choice(VALUES)
    if field.name == "workers" and value not in ("0", "-1", "x"):
        value = "1"
    if not _PLAIN_VALUE.fullmatch(value) and "," not in value:
        value = f'"{value}"'
    return f"{field.name}={value}"


def _specification(rng: random.Random, name: str, kind: type, text: str) -> str:
    """Return a pass or target with some options; required ones mostly."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    needed = [f for f in fields if f.default is dataclasses.MISSING and rng.random() < 0.95]
    rest = [f for f in fields if f.default is not dataclasses.MISSING]
    limit = [f for f in rest if f.name == "limit"]
    chosen = rng.sample(rest, min(len(rest), rng.choice([0, 0, 1, 1, 2])))
    fields_ = dict.fromkeys([*needed, *limit, *chosen])
    options = " ".join(_option(rng, f, text) for f in fields_)
    return f"{name}{{{options}}}" if options else name


OTHER_PASSES = ["cse", "dce", *PIPELINES]


def pipeline(rng: random.Random, text: str) -> str:
    """Return a few passes in any order."""
    names = [
        rng.choice([*PASSES, *PASSES, *OTHER_PASSES]) for _ in range(rng.choice([1, 2, 3, 4, 6]))
    ]
    return ",".join(
        _specification(rng, name, PASSES[name](), text) if name in PASSES else name
        for name in names
    )


def target(rng: random.Random, text: str) -> str:
    """Return a target with some options."""
    name = rng.choice([*TARGETS, "mlir"])
    return _specification(rng, name, TARGETS[name](), text) if name in TARGETS else name


def parsers() -> list[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Return the parsers of all commands but collopt, each with its words."""
    found: list[tuple[tuple[str, ...], argparse.ArgumentParser]] = []
    parser = getattr(collrun, "_parser")()  # noqa: B009
    found.append((("collrun",), parser))
    for name in collir.COMMANDS:
        top = getattr(collir, "_parser")(name)  # noqa: B009
        command = _choices(top)[name]
        below = _choices(command)
        found += [(("collir", name, key), sub) for key, sub in below.items()] or [
            (("collir", name), command)
        ]
    return found


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            return dict(action.choices)  # pyright: ignore
    return {}


COLLOPT_OPTIONS = ["-f", "-t", "-o", "-p", "--function", "--help-pass", "--help-target",
                   "--disable-verify", "--allow-unregistered-dialect", "--no-implicit-module",
                   "--print-between-passes", "--time-passes", "--verify-diagnostics",
                   "--parsing-diagnostics", "--split-input-file", "--print-op-generic",
                   "--print-no-properties", "--print-debuginfo", "--syntax-highlight", "--shrink",
                   "--cost-between-passes", "--validate-passes"]  # fmt: skip
