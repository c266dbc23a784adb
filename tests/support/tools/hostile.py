"""Command lines with hostile input: files and options mutated, and passes in any order.

``PYTHONPATH=tests python tests/support/tools/hostile.py [COUNT] [SEED] [KIND] [FOLDER]`` runs a
campaign and prints its table; FOLDER keeps the cases that fail. A COUNT of ``3000:5000`` runs those
cases of the 5000.
"""

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

from support.harness.limited import Case, Verdict, run_all
from support.harness.lit_files import run_lines
from support.tools.mutations import (
    EXAMPLES,
    MODELS,
    NUMBERS,
    ROOT,
    TEXTS,
    change_blocks,
    change_bytes,
    change_lines,
    change_names,
    change_numbers,
    change_tokens,
    exchange_words,
)
from support.tools.wrong_options import COLLOPT_OPTIONS, VALUES, parsers, pipeline, target

from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools import collopt

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
                 Seed(path, ("collir", "machine", "--from", "%s", "--json", "--name",
                 "x"))]  # fmt: skip
    for path in sorted((ROOT / "examples/search").glob("*")):
        problems = {".clq": ["clique", "kclique --k 3"], ".tsp": ["tsp"], ".atsp": ["tsp"],
                    ".items": ["knapsack"], ".lad": ["clique"]}.get(path.suffix, ())  # fmt: skip
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
    """Mutate the file of a command."""
    seed = rng.choice(seeds())
    mutate = rng.choice(TEXTS)
    text = mutate(rng, _text(seed))
    return _case(f"text: {mutate.__name__}", seed, seed.words, text.encode("utf-8", "replace"))


def mutated_model(rng: random.Random) -> Case:
    """Mutate a model so that it may well parse, and run passes and a target on it."""
    path = rng.choice([*MODELS, *MODELS, *EXAMPLES])
    text = path.read_text(encoding="utf-8")
    mutate = rng.choice([exchange_words, change_numbers, change_lines, change_names, change_blocks])
    mutated = mutate(rng, text)
    words = ["collopt", "%s", "-t", target(rng, text)]
    if rng.random() < 0.5:
        words += ["-p", pipeline(rng, text)]
    return _case(
        f"model: {mutate.__name__}", Seed(path, ()), words, mutated.encode("utf-8", "replace")
    )


def mutated_bytes(rng: random.Random) -> Case:
    """Change the bytes of the file of a command."""
    seed = rng.choice([*seeds(), *foreign_seeds()])
    return _case("bytes", seed, seed.words, change_bytes(rng, _text(seed)))


def passes_in_any_order(rng: random.Random) -> Case:
    """Run passes in any order, and a target, on a file as it is."""
    path = rng.choice([*MODELS, *EXAMPLES, rng.choice(seeds()).path])
    text = path.read_bytes().decode("utf-8", "replace")
    words = ["collopt", "%s", "-p", pipeline(rng, text), "-t", target(rng, text)]
    functions = re.findall(r"^func @(\w+)", text, re.M)
    if functions and rng.random() < 0.3:
        words += ["--function", rng.choice(functions)]
    return _case("passes and targets", Seed(path, ()), words, path.read_bytes())


def run_on_devices(rng: random.Random) -> Case:
    """Run a file at sizes and after passes that it may not have."""
    path = rng.choice([*MODELS, *EXAMPLES])
    text = path.read_text(encoding="utf-8")
    sizes = re.findall(r"(\w+) = \d+[,)]", text)
    words = ["collrun", "%s"]
    for name in dict.fromkeys(sizes):
        words += ["--set-size", f"{name}={rng.choice(['1', '2', '4', '8', *NUMBERS])}"]
    if rng.random() < 0.5:
        words += ["-p", pipeline(rng, text)]
    if rng.random() < 0.5:
        text = rng.choice([exchange_words, change_numbers])(rng, text)
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
    """Mutate a file that is not of collir."""
    seed = rng.choice(foreign_seeds())
    mutate = rng.choice([change_tokens, change_numbers, change_lines, exchange_words, change_names])
    data = mutate(rng, _text(seed)).encode("utf-8", "replace")
    return _case(f"foreign: {' '.join(seed.words[1:2])}", seed, seed.words, data)


_PARSERS = parsers()


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


def cases(count: int, seed: int, kinds: str = "", start: int = 0) -> Iterator[Case]:
    """Yield random cases, the same ones for a seed, from a number on."""
    rows = [(f, w) for f, w in KINDS if kinds in f.__name__]
    functions, weights = [f for f, _ in rows], [w for _, w in rows]
    for index in range(start, count):
        rng = random.Random(f"{seed} {index}")
        case = rng.choices(functions, weights)[0](rng)
        if any("\x00" in word for word in case.words):
            case = dataclasses.replace(case, words=tuple(w.replace("\x00", "") for w in case.words))
        yield case


def main() -> None:
    """Run a campaign and print its table, and each fault."""
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "5000").rpartition(":")
    start, count = int(first or 0), int(last)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    kinds = sys.argv[3] if len(sys.argv) > 3 else ""
    keep = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    totals: Counter[str] = Counter()
    faults: Counter[tuple[str, str]] = Counter()
    worst: list[tuple[float, str]] = []
    largest: list[tuple[float, str]] = []
    preload()
    with TemporaryDirectory() as folder:
        chosen = cases(count, seed, kinds, start)
        for index, (case, verdict) in enumerate(run_all(chosen, Path(folder)), start):
            totals[case.kind] += 1
            if (index + 1) % 100 == 0:
                print(f"{index + 1} cases, {faults.total()} faults", flush=True)
            line = f"{index}: {shlex.join(case.words)[:300]}"
            worst = sorted([*worst, (verdict.seconds, line)])[-10:]
            largest = sorted([*largest, (verdict.megabytes, line)])[-10:]
            if verdict.fault:
                if keep:
                    _keep(keep / str(index), case, verdict)
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


def _keep(folder: Path, case: Case, verdict: Verdict) -> None:
    """Write a case that failed, with its command and its messages, to a folder."""
    for name, data in case.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            (folder / name).write_bytes(data)
    text = "\n".join([shlex.join(case.words), verdict.fault, verdict.err, *verdict.trace])
    (folder / "report").write_text(text, encoding="utf-8", errors="replace")


if __name__ == "__main__":
    main()
