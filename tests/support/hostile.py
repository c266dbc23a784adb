"""Command lines with hostile input: files and options mutated, and passes in any order.

``python tests/support/hostile.py [COUNT] [SEED]`` runs a campaign and prints its table.
"""

import argparse
import dataclasses
import io
import random
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from limited import Case, Verdict, run_all
from lit_files import run_lines

from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools import collir, collopt, collrun

ROOT = Path(__file__).parents[2]
ENGINES = re.compile(r"--engine|--run|--device|mpiexec|--workers|--resume|workers=")
"""Options that start processes."""


@dataclass(frozen=True)
class Seed:
    """A command line that works, or that gives a diagnostic, and the file it reads."""

    path: Path
    words: tuple[str, ...]


def _of_comments(path: Path) -> Iterator[Seed]:
    """Yield the commands in the first comment, or the RUN lines, of a file."""
    text = path.read_bytes().decode("utf-8", "replace")
    commands = [command.split(" | ")[0].removeprefix("not ") for command in run_lines(text)]
    first = re.match(r"(?://|c|COMMENT:|#) ((?:collopt|collrun|collir) .*)", text)
    for command in [*commands, *([first[1]] if first else [])]:
        words = [word for word in shlex.split(command) if word != "2>&1"]
        if not ENGINES.search(command) and "%s" in words:
            yield Seed(path, tuple(words))


def _of_docs() -> Iterator[Seed]:
    """Yield the commands of the pages and of the examples' comments that read an example."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    for page in pages:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(r"^\$ ((?:collopt|collrun|collir) [^|<>&;]*)$", text, re.M):
            try:
                words = shlex.split(command)
            except ValueError:
                continue
            for index, word in enumerate(words):
                if word.startswith("examples/") and (ROOT / word).is_file():
                    marked = [*words[:index], "%s", *words[index + 1 :]]
                    if not ENGINES.search(command) and "-o" not in words:
                        yield Seed(ROOT / word, tuple(marked))
                    break


MODELS = sorted((ROOT / "examples/models").glob("*.coll"))
EXAMPLES = sorted((ROOT / "examples").glob("*.coll"))
PLAIN = ["collopt %s", "collopt %s -p propagate", "collopt %s -p default -t cost",
         "collopt %s -t mlir", "collopt %s -t simulate", "collopt %s -p expand,inline -t coll",
         "collopt %s -t jax", "collopt %s -t torch", "collopt %s -t mpi", "collopt %s -t mpi4py",
         "collopt %s -t explain", "collopt %s -p differentiate"]  # fmt: skip


@cache
def seeds() -> list[Seed]:
    """Return all command lines of tests and pages, and some for every example."""
    inputs = [
        path
        for folder in ("tests/filecheck", "tests/errors")
        for suffix in ("coll", "mlir")
        for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
    ]
    found = [seed for path in inputs for seed in _of_comments(path)]
    library = sorted([*(ROOT / "collir/syntax/library").glob("*.coll"),
                      *(ROOT / "collir/machine/presets").glob("*.coll"),
                      *(ROOT / "examples/lib").glob("*.coll"),
                      *(ROOT / "benchmarks/testbed/machines").glob("*.coll")])  # fmt: skip
    plain = [Seed(path, tuple(shlex.split(c))) for path in [*EXAMPLES, *library] for c in PLAIN]
    models = [Seed(path, tuple(shlex.split(c))) for path in MODELS for c in PLAIN]
    return [*found, *_of_docs(), *plain, *models, *models]


def foreign_seeds() -> list[Seed]:
    """Return command lines that read what is not ``.coll``."""
    rows: list[Seed] = []
    for path in sorted((ROOT / "tests/importing/topologies").glob("*")):
        rows += [Seed(path, ("collir", "machine", "--from", "%s")),
                 Seed(path, ("collir", "machine", "--from", "%s", "--json", "--name", "x"))]  # fmt: skip
    for path in sorted((ROOT / "examples/search").glob("*")):
        problems = {".clq": ["clique", "kclique --k 3"], ".tsp": ["tsp"], ".atsp": ["tsp"],
                    ".items": ["knapsack"], ".lad": ["clique"]}[path.suffix]  # fmt: skip
        rows += [
            Seed(path, ("collir", "search", *problem.split(), "%s", "--node-limit", "500"))
            for problem in problems
        ]
    pod = (ROOT / "examples/calibration/pod.coll").relative_to(ROOT)
    for name, over in (("one_host.txt", "gpu"), ("two_hosts.txt", "node*gpu")):
        path = ROOT / "examples/calibration" / name
        for command in (f"compare {ROOT / pod} --from %s", f"calibrate {ROOT / pod} --from %s",
                        f"compare {ROOT / pod} --from %s,over={over} --json"):  # fmt: skip
            rows.append(Seed(path, ("collir", *command.split())))
    device = ROOT / "examples/calibration/device.txt"
    rows += [Seed(device, ("collir", "calibrate", "--device", "--from", "%s"))] * 3
    for path in sorted((ROOT / "tests/errors").rglob("*.txt")):
        rows += [Seed(path, ("collir", "compare", "@dgx_a100", "--from", "%s")),
                 Seed(path, ("collir", "calibrate", "@dgx_a100", "--from", "%s"))]  # fmt: skip
    return rows


# --- texts --------------------------------------------------------------------------------------

_TOKEN = re.compile(r"[%@]?\w+|\s+|.", re.DOTALL)
NUMBERS = ["0", "-1", "1", "2", "3", "7", "2147483647", "2147483648", "9223372036854775807",
           "9223372036854775808", str(10**19), "9" * 400, "1e308", "1e999", "-1e308", "1e-320", "nan",
           "inf", "-inf", "0.1", "-0", "00", "0x10", "1_000", "1e3", "3.0", "٣", ""]  # fmt: skip
NAMES = ["é", "", "a" * 5000, "for", "int", "main", "__init__", "__class__", "self", "None", "numpy",
         "auto", "on", "any", "func", "x y", "\N{SNOWMAN}", "ａ", "0", "_", "ſ", "MPI_Init", "e1",
         "f32", "NULL", "data", "gpu", "batch", "torch", "lambda", "a.b", "%", "@", "x-y"]  # fmt: skip
STRANGE = [*NUMBERS, *NAMES, "%g", "@m", "data.gpu", "partial(sum: data)", "partial(max: data)",
           "root(data)", "at(data = 1)", "f32[]", "f32[...]", "[", "]", "(", ")", "{", "}", ":", ",",
           "=", "*", "/", '"', '""', "//", "\x00", "\ufeff", "over", "dim", "return", "machine", "mesh",
           "call @f()", "repeat 3", "gradient @f() wrt", "from", "GB/s", "us", "bf16", "i8", "f64",
           "i64", "avg", "parameter", "state", "yield", "carry()", "slice()", "with()",
           "->", '"b i -> b"', "weights [1, 2]", "stream s", "wait"]  # fmt: skip


def _tokens(rng: random.Random, text: str) -> str:
    """Return a text with a few tokens dropped, doubled, swapped, replaced or moved."""
    tokens = _TOKEN.findall(text)
    if not tokens:
        return text
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                tokens[i] = ""
            case 1:
                tokens[i] += tokens[i]
            case 2:
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case 3:
                tokens[i] = tokens[j]
            case _:
                tokens[i] = rng.choice(STRANGE)
    return "".join(tokens)


def _numbers(rng: random.Random, text: str) -> str:
    """Return a text with one or two numbers replaced by extreme ones."""
    places = [
        m for m in re.finditer(r"\b\d[\d.]*(?:e-?\d+)?", text) if not _in_comment(text, m.start())
    ]
    return _replaced(rng, text, places, NUMBERS)


def _names(rng: random.Random, text: str) -> str:
    """Return a text in which a name has another spelling, everywhere or once."""
    names = sorted(set(re.findall(r"[%@]?\b[A-Za-z_]\w*", text)))
    if not names:
        return text
    name, new = rng.choice(names), rng.choice(NAMES + names)
    if name[0] in "%@" and new[:1] not in ("%", "@"):
        new = name[0] + new
    pattern = re.escape(name) + r"\b"
    return re.sub(pattern, lambda _: new, text, count=rng.choice([0, 0, 1]))


def _words_of_one_kind(rng: random.Random, text: str) -> str:
    """Return a text with a word or sign replaced by another of the same kind: it may well parse."""
    for _ in range(rng.choice([1, 1, 2])):
        kind = rng.choice([r"%\w+", r"@\w+", r"\b[a-z_]{2,}\b", r"\b\d+\b", r"[,:=*/()\[\]{}@]"])
        places = [m for m in re.finditer(kind, text) if not _in_comment(text, m.start())]
        text = _replaced(rng, text, places, sorted({m.group() for m in places}), 1)
    return text


def _in_comment(text: str, place: int) -> bool:
    return "//" in text[text.rfind("\n", 0, place) + 1 : place]


def _replaced(
    rng: random.Random, text: str, places: list[re.Match[str]], by: list[str], most: int = 2
) -> str:
    chosen = rng.sample(places, min(len(places), rng.randint(1, most)))
    for place in sorted(chosen, key=lambda m: -m.start()):
        text = text[: place.start()] + rng.choice(by) + text[place.end() :]
    return text


def _lines(rng: random.Random, text: str) -> str:
    """Return a text with lines dropped, doubled, swapped, or cut off."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    i, j = sorted([rng.randrange(len(lines)), rng.randrange(len(lines))])
    match rng.randrange(5):
        case 0:
            del lines[i : i + rng.choice([1, 1, j - i])]
        case 1:
            lines[i:i] = lines[i : i + rng.choice([1, 1, 5])]
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case 3:
            return text[: rng.randrange(len(text))]
        case _:
            lines[i] = lines[i] * 200
    return "".join(lines)


def _blocks(rng: random.Random, text: str) -> str:
    """Return a text with a machine, mesh or function doubled, moved or of another text."""
    blocks = re.split(r"(?m)^(?=machine |mesh |func )", text)
    i = rng.randrange(len(blocks))
    match rng.randrange(4):
        case 0:
            blocks.insert(rng.randrange(len(blocks) + 1), blocks[i])
        case 1:
            blocks[i], blocks[0] = blocks[0], blocks[i]
        case 2:
            del blocks[i]
        case _:
            other = rng.choice([*MODELS, *EXAMPLES]).read_text(encoding="utf-8")
            blocks += re.split(r"(?m)^(?=machine |mesh |func )", other)[1:]
    return "\n".join(blocks)


TEXTS: list[Callable[[random.Random, str], str]] = [
    _tokens, _tokens, _numbers, _numbers, _names, _words_of_one_kind, _words_of_one_kind, _lines,
    _blocks,
]  # fmt: skip


def _bytes(rng: random.Random, text: str) -> bytes:
    """Return the bytes of a text in another encoding, or with bytes that belong to none."""
    data = text.encode()
    place = rng.randrange(len(data) + 1)
    match rng.randrange(11):
        case 0:
            return data[:place] + b"\x00" + data[place:]
        case 1:
            return b"\xef\xbb\xbf" + data
        case 2:
            return data.replace(b"\n", b"\r\n")
        case 3:
            return data.replace(b"\n", b"\r")
        case 4:
            return text.encode("utf-16")
        case 5:
            return data[:place] + rng.randbytes(20) + data[place:]
        case 6:
            return data[:place] + "é".encode("latin-1") + data[place:]
        case 7:
            return data[:place]
        case 8:
            return rng.randbytes(2000)
        case 9:
            return data[:place] + "\u2028\x85\x0b\x0c\u202e".encode() + data[place:]
        case _:
            return data.replace(b" ", b"\t").rstrip(b"\n")


# --- options ------------------------------------------------------------------------------------

VALUES = ["", "-1", "0", "1", "2", "1e308", "nan", "inf", "0.1", str(2**63), str(10**19), "9" * 5000,
          "x", "é", "@m", "a=b", "=", "out", "true", "none", "a,b", "{}", '"', "\x00", "/", ".", "-",
          "--", "auto", "p2", "nccl", "cheapest", "ring", "hardware", "30 s", "2 GB", "%s", "missing",
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
        "workers": ["1", "1", "0", "-1", "x"], "memory": ["0", "-1", "1", "0.5", "1e9", str(10**30)],
    }.get(field.name, NUMBERS if "int" in kind else ["true", "false"] if "bool" in kind else names)  # fmt: skip
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


def _parsers() -> list[tuple[tuple[str, ...], argparse.ArgumentParser]]:
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


# --- cases --------------------------------------------------------------------------------------


def _companions(path: Path, text: str) -> list[tuple[str, bytes | None]]:
    """Return the files that a file names, which lie beside it."""
    files: list[tuple[str, bytes | None]] = []
    for name in sorted(set(re.findall(r'from "([^"\n]+)"', text))):
        other = path.parent / name
        if other.is_file() and not Path(name).is_absolute() and ".." not in name:
            files.append((name, other.read_bytes()))
    return files


def _case(kind: str, seed: Seed, words: list[str] | tuple[str, ...], data: bytes) -> Case:
    name = f"in{seed.path.suffix}"
    text = data.decode("utf-8", "replace")
    spelt = tuple(word.replace("%s", name).replace("%S", ".") for word in words)
    files = [(n, d) for n, d in _companions(seed.path, text) if n != name]
    return Case(kind, spelt, ((name, data), *files))


def _text(seed: Seed) -> str:
    return seed.path.read_bytes().decode("utf-8", "replace")


def mutated_text(rng: random.Random) -> Case:
    seed = rng.choice(seeds())
    mutate = rng.choice(TEXTS)
    text = mutate(rng, _text(seed))
    return _case(f"text: {mutate.__name__[1:]}", seed, seed.words, text.encode("utf-8", "replace"))


def mutated_model(rng: random.Random) -> Case:
    """Mutate a model so that it may well parse, and run passes and a target on it."""
    path = rng.choice([*MODELS, *MODELS, *EXAMPLES])
    text = path.read_text(encoding="utf-8")
    mutate = rng.choice([_words_of_one_kind, _numbers, _lines, _names, _blocks])
    mutated = mutate(rng, text)
    words = ["collopt", "%s", "-t", target(rng, text)]
    if rng.random() < 0.5:
        words += ["-p", pipeline(rng, text)]
    return _case(
        f"model: {mutate.__name__[1:]}", Seed(path, ()), words, mutated.encode("utf-8", "replace")
    )


def mutated_bytes(rng: random.Random) -> Case:
    seed = rng.choice([*seeds(), *foreign_seeds()])
    return _case("bytes", seed, seed.words, _bytes(rng, _text(seed)))


def passes_in_any_order(rng: random.Random) -> Case:
    path = rng.choice([*MODELS, *EXAMPLES, rng.choice(seeds()).path])
    text = path.read_bytes().decode("utf-8", "replace")
    words = ["collopt", "%s", "-p", pipeline(rng, text), "-t", target(rng, text)]
    functions = re.findall(r"^func @(\w+)", text, re.M)
    if functions and rng.random() < 0.3:
        words += ["--function", rng.choice(functions)]
    return _case("passes and targets", Seed(path, ()), words, path.read_bytes())


def run_on_devices(rng: random.Random) -> Case:
    path = rng.choice([*MODELS, *EXAMPLES])
    text = path.read_text(encoding="utf-8")
    sizes = re.findall(r"(\w+) = \d+[,)]", text)
    words = ["collrun", "%s"]
    for name in dict.fromkeys(sizes):
        words += ["--set-size", f"{name}={rng.choice(['1', '2', '4', '8', *NUMBERS])}"]
    if rng.random() < 0.5:
        words += ["-p", pipeline(rng, text)]
    if rng.random() < 0.5:
        text = rng.choice([_words_of_one_kind, _numbers])(rng, text)
    return _case("collrun", Seed(path, ()), words, text.encode("utf-8", "replace"))


def wrong_options(rng: random.Random) -> Case:
    """Give a command an option with a value that it may not take."""
    if rng.random() < 0.35:
        seed = rng.choice(seeds())
        words = [*seed.words]
        for _ in range(rng.choice([1, 1, 2])):
            option = rng.choice(COLLOPT_OPTIONS)
            words += [option, *([rng.choice(VALUES)] if rng.random() < 0.8 else [])]
        if words[0] != "collopt":
            words = ["collopt", "%s", *words[words.index("%s") + 1 :]] if "%s" in words else words
        return _case("options: collopt", seed, words, seed.path.read_bytes())
    command, parser = rng.choice(_PARSERS)
    seed = rng.choice(
        [s for s in [*seeds(), *foreign_seeds()] if s.words[: len(command)] == command]
        or [Seed(MODELS[0], (*command, "%s"))]
    )
    words = [*seed.words]
    actions = [a for a in parser._actions if a.option_strings]  # pyright: ignore[reportPrivateUsage]
    for _ in range(rng.choice([1, 1, 2])):
        action = rng.choice(actions)
        values = [*VALUES, *(action.choices or ())]
        words += [
            rng.choice(action.option_strings),
            *([rng.choice(values)] if action.nargs != 0 else []),
        ]
    if ENGINES.search(" ".join(words)) and rng.random() < 0.9:
        words = [w for w in words if not ENGINES.search(w)]
    if "--run" in words or ("--device" in words and "--from" not in words):
        words = [*command, "--run"]
    return _case(f"options: {' '.join(command)}", seed, words, seed.path.read_bytes())


def foreign(rng: random.Random) -> Case:
    seed = rng.choice(foreign_seeds())
    mutate = rng.choice([_tokens, _numbers, _lines, _words_of_one_kind, _names])
    data = mutate(rng, _text(seed)).encode("utf-8", "replace")
    return _case(f"foreign: {' '.join(seed.words[1:2])}", seed, seed.words, data)


_PARSERS = _parsers()


def preload() -> None:
    """Import what commands import when they need it, so that it is there in all processes."""
    for factory in (*PASSES.values(), *TARGETS.values()):
        factory()
    for words in (["-t", "gantt"], ["-p", "default", "-t", "jax"], ["-t", "mlir"]):
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            collopt.main([str(ROOT / "examples/sync_gradients.coll"), *words])


KINDS: list[tuple[Callable[[random.Random], Case], int]] = [
    (mutated_text, 30),
    (mutated_model, 20),
    (mutated_bytes, 5),
    (passes_in_any_order, 15),
    (run_on_devices, 5),
    (wrong_options, 13),
    (foreign, 12),
]


def cases(count: int, seed: int, kinds: str = "") -> Iterator[Case]:
    """Yield random cases, the same ones for a seed."""
    rows = [(f, w) for f, w in KINDS if kinds in f.__name__]
    functions, weights = [f for f, _ in rows], [w for _, w in rows]
    for index in range(count):
        rng = random.Random(f"{seed} {index}")
        case = rng.choices(functions, weights)[0](rng)
        if any("\x00" in word for word in case.words):
            case = dataclasses.replace(case, words=tuple(w.replace("\x00", "") for w in case.words))
        yield case


def main() -> None:
    """Run a campaign and print its table, and each fault."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kinds = sys.argv[3] if len(sys.argv) > 3 else ""
    keep = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    totals: Counter[str] = Counter()
    faults: Counter[tuple[str, str]] = Counter()
    worst: list[tuple[float, str]] = []
    largest: list[tuple[float, str]] = []
    preload()
    with TemporaryDirectory() as folder:
        for index, (case, verdict) in enumerate(run_all(cases(count, seed, kinds), Path(folder))):
            totals[case.kind] += 1
            line = f"{index}: {shlex.join(case.words)[:300]}"
            worst = sorted([*worst, (verdict.seconds, line)])[-10:]
            largest = sorted([*largest, (verdict.megabytes, line)])[-10:]
            if keep:
                _log(keep, index, case, verdict)
            if verdict.fault:
                faults[case.kind, verdict.fault] += 1
                print(
                    f"{line}\n    {verdict.fault}: {verdict.err[-300:]!r} {verdict.trace[-3:]}",
                    flush=True,
                )
    for kind, number in sorted(totals.items()):
        found = {fault: n for (k, fault), n in faults.items() if k == kind}
        print(f"{kind:30} {number:6} {found or ''}")
    print("slowest", *worst[::-1], sep="\n  ")
    print("largest", *largest[::-1], sep="\n  ")


def _log(keep: Path, index: int, case: Case, verdict: Verdict) -> None:
    """Keep a case and its outcome, to be read."""
    keep.mkdir(exist_ok=True)
    with (keep / "log.txt").open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"=== {index} {case.kind} {shlex.join(case.words)[:400]}\n")
        file.write(
            f"status {verdict.status} {verdict.seconds:.2f} s {verdict.megabytes:.0f} MB fault {verdict.fault!r}\n{verdict.err[:3000]}\n"
        )
    if verdict.fault:
        folder = keep / str(index)
        folder.mkdir(exist_ok=True)
        for name, data in case.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if data is not None:
                (folder / name).write_bytes(data)
        (folder / "command").write_text(
            shlex.join(case.words) + "\n", encoding="utf-8", errors="replace"
        )
        (folder / "err").write_text(
            "\n".join([verdict.fault, verdict.err, verdict.out[:500], *verdict.trace]),
            encoding="utf-8",
            errors="replace",
        )


if __name__ == "__main__":
    main()
