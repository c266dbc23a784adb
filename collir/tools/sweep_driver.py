"""The driver of ``collir sweep``: it reads the model, makes the space, searches, and prints."""

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from collir import search
from collir.dialects.machine import MachineOp
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Sources
from collir.machine import Machine
from collir.search.core.problem import SearchError
from collir.syntax.units import Quantity, bytes_text, seconds_text
from collir.synthesis.sweeping.configuration import CONTEXT, REPLICA, Recompute
from collir.synthesis.sweeping.dividing import division_of, unused_axis
from collir.synthesis.sweeping.programs import STAGES_OF_ZERO
from collir.synthesis.sweeping.space import SCHEDULES, ConfigurationSpace, level_sizes
from collir.synthesis.sweeping.steps import TrainingStep
from collir.targets.reports.page.rendered import check_installed as check_page
from collir.tools.api import emit, read_text
from collir.tools.deadline import Deadline
from collir.tools.engines import ENGINES
from collir.tools.executors import Workers, workers_at
from collir.tools.measured import machines_of
from collir.tools.shell import UsageError, check_folders, write_whole
from collir.tools.sweep_estimates import ProgressLine, estimated
from collir.tools.sweep_explain import compared, explained
from collir.tools.sweep_measure import MEASURING, measured_seconds, measured_text
from collir.tools.sweep_model import Model, step_of
from collir.tools.sweep_output import (
    BestConfigurations,
    Listed,
    Swept,
    as_csv,
    as_json,
    as_machines,
    as_text,
    columns,
    excess,
)
from collir.tools.sweep_page import html
from collir.tools.sweep_plot import check_installed, svg
from collir.tools.sweep_search import ConfigurationNode, Sweep
from collir.tools.sweep_settings import FRAMEWORKS, check_words, settings_text

T = TypeVar("T")

LONG = 2**15
"""The words of a sequence from which on they are divided over an axis of their own by default."""

FIRST = 3
"""The configurations that are simulated in any case, until one fits into memory."""


def run(options: argparse.Namespace, sources: Sources) -> int:
    """Run the command and return its exit status.

    Raises:
        UsageError, DiagnosticError: an option or the program cannot be used, or no configuration is
            possible.
    """
    with workers_at(options.executor, options.workers) as workers:
        if workers.is_done:
            return 0
        swept = sweep(options, sources, workers)
        if options.json:
            text = as_json(swept)
        else:
            text = "\n".join(_report(options, model, outcomes) for model, outcomes in swept)
            text += as_machines(swept)
        files = files_of(options, swept)
        sys.stdout.write(text)
        for path, text in files.items():
            write_whole(path, text)
    return 0


def sweep(
    options: argparse.Namespace, sources: Sources, workers: Workers, text: str | None = None
) -> Sequence[Swept]:
    """Return the best configurations on each machine.

    Args:
        text: the program; by default, the text of the file that the options name.

    Raises:
        UsageError, DiagnosticError: as for ``run``.
    """
    models = _models(options, sources, text)
    spaces = [_space(options, model) for model in models]
    _check_options(options, spaces)
    for model, space in zip(models, spaces, strict=True):
        _check_output(options, model, space)
    swept = [
        (model, _found(options, model, space, workers))
        for model, space in zip(models, spaces, strict=True)
    ]
    if not any(outcome.best for _, outcomes in swept for outcome in outcomes):
        reasons = [_none(outcomes, _memory(options, model.machine)) for model, outcomes in swept]
        raise DiagnosticError(Diagnostic("; ".join(dict.fromkeys(reasons))))
    return swept


def files_of(options: argparse.Namespace, swept: Sequence[Swept]) -> dict[str, str]:
    """Return the texts of the files that options ask for, by their paths."""
    [(model, outcomes), *_], best = swept, best_of(swept)
    files: dict[str, str] = {}
    if path := options.csv:
        files[path] = as_csv(swept)
    if path := options.plot:
        files[path] = svg(model, outcomes, _memory(options, model.machine))
    if path := options.html:
        files[path] = page_of(options, swept)
    if path := options.settings_output:
        files[path] = settings_of(options, *best)
    if path := options.output:
        files[path] = _program_text(path, *best)
    return files


def page_of(options: argparse.Namespace, swept: Sequence[Swept]) -> str:
    """Return the page of a sweep.

    Raises:
        DiagnosticError: jinja2 is not installed.
    """
    [(model, _), *_] = swept
    return html(swept, _memory(options, model.machine))


def best_of(swept: Sequence[Swept]) -> Swept:
    """Return the machine with the least time, on any number of devices."""
    return min(
        (each for each in swept if any(found.best for found in each[1])),
        key=lambda each: _fastest(each[1])[1].time,
    )


def _found(
    options: argparse.Namespace,
    model: Model,
    space: ConfigurationSpace,
    workers: Workers,
) -> list[BestConfigurations]:
    """Return the best configurations on a machine, for each number of devices."""
    memory = _memory(options, model.machine)
    estimator = model.estimator(workers.number, workers.executor)
    progress = ProgressLine(options.progress)
    outcomes: list[BestConfigurations] = []
    for devices in space.devices:
        deadline, own = Deadline(options.time_limit), replace(space, devices=(devices,))
        entries, seen = estimated(own, estimator, memory, deadline, progress)
        with TemporaryDirectory(prefix="collir-sweep-") as folder:
            failures = Path(folder) / "failures"
            problem = Sweep(model, entries, memory, deadline, str(failures))
            best = _search(options, problem, seen, workers, progress)
            lines = failures.read_text("utf-8").splitlines() if failures.exists() else []
        failed = Counter(line.partition(" ")[2] for line in dict.fromkeys(lines))
        outcomes.append(replace(best, failed=failed))
    if options.measure:
        outcomes = [
            _measured(options, model, outcome) if outcome.best else outcome for outcome in outcomes
        ]
    return outcomes


def _report(options: argparse.Namespace, model: Model, found: Sequence[BestConfigurations]) -> str:
    """Return the tables of a machine, and what is asked about them."""
    memory = _memory(options, model.machine)
    details = _details(options, model, found, memory) if any(each.best for each in found) else ()
    return as_text(model, found, options.sort) + "".join(details)


def _check_options(options: argparse.Namespace, spaces: Sequence[ConfigurationSpace]) -> None:
    """Check that options go together."""
    if (options.checkpoint or options.resume) and sum(len(space.devices) for space in spaces) > 1:
        what = "one machine and one number of --devices"
        raise UsageError(f"--checkpoint and --resume go with {what}")
    if options.plot and len(spaces) > 1:
        raise UsageError("--plot goes with one machine")
    if options.json and (options.explain or options.compare or _printed(options)):
        raise UsageError("--explain, --compare and --settings print text: leave out --json")
    if options.settings_output and not options.settings:
        raise UsageError("--settings-output writes what --settings asks for: add --settings torch")
    for rank in (options.explain or 1, options.measure or 1, *(options.compare or ())):
        if rank > options.top:
            raise UsageError(f"there is no number {rank}: the list ends at --top {options.top}")


def _printed(options: argparse.Namespace) -> bool:
    """Return whether settings are printed behind the tables."""
    return bool(options.settings) and not options.settings_output


def _check_output(options: argparse.Namespace, model: Model, space: ConfigurationSpace) -> None:
    """Check, before slow work begins, that the requested outputs are possible."""
    if options.settings:
        [_] = _words("--settings", options.settings, FRAMEWORKS)
        others = [axis for axis in space.axes if axis != space.pipeline]
        wide = [axis for axis in others if max(space.degrees.get(axis, (2,))) > 1]
        check_words(options.settings, model.step, wide, space.schedules)
    if options.measure:
        [engine] = _words("--engine", options.engine, {name: ENGINES[name] for name in MEASURING})
        engine.check_installed()
    if options.plot:
        check_installed()
    if options.html:
        check_page()
    check_folders(options.csv, options.plot, options.html, options.settings_output, options.output)
    first = next(space.configurations(Counter()), None)
    if first and options.sort not in (names := columns(model, first)):
        raise UsageError(f"--sort {options.sort}: the columns are {', '.join(names)}")


def _measured(
    options: argparse.Namespace, model: Model, found: BestConfigurations
) -> BestConfigurations:
    """Return what is found, with the measured times of the first ones."""
    configurations = [configuration for (configuration, _), _ in found.best[: options.measure]]
    seconds = measured_seconds(model, configurations, options.engine, options.repeats)
    return replace(found, measured=[*seconds])


def _search(
    options: argparse.Namespace,
    problem: Sweep,
    found: BestConfigurations,
    workers: Workers,
    progress: ProgressLine,
) -> BestConfigurations:
    """Return the fastest of some configurations."""
    entries = problem.entries
    if not entries:
        return found

    def tell(solution: search.Solution[ConfigurationNode]) -> None:
        time = seconds_text(solution.node.time)
        progress.say(f"simulating up to {len(entries):,} configurations; one takes {time}")

    settings = search.Options(
        order="best-first",
        workers=workers.number,
        engine=workers.executor or "auto",
        time_limit=problem.deadline.left(),
        progress=False,
        on_solution=tell,
    )
    for name in ("checkpoint", "resume"):
        if path := getattr(options, name):
            settings[name] = path
    try:
        outcome = search.k_best(problem, options.top, **settings)
    except SearchError as error:
        raise DiagnosticError(Diagnostic(str(error))) from error
    finally:
        progress.say("")
    nodes: list[ConfigurationNode] = [solution.node for solution in outcome.solutions]
    if not nodes and outcome.statistics.reason:  # a sweep that ends early has one at least
        unlimited, first = replace(problem, deadline=Deadline.never()), range(len(entries))[:FIRST]
        nodes = [*islice(filter(None, map(unlimited.simulated, first)), 1)]
    complete = found.complete and outcome.status in ("optimal", "infeasible")
    front: Sequence[ConfigurationNode] = ()
    if options.pareto and complete:
        front = problem.front(nodes, workers.number, workers.executor)
    best, least = ([(entries[node.number], node) for node in part] for part in (nodes, front))
    reason = found.reason or outcome.statistics.reason
    if complete and (too_large := excess([(entries[node.number], node) for node in nodes])):
        complete, reason = False, too_large
    return replace(found, best=best, complete=complete, reason=reason, front=least)


def _details(
    options: argparse.Namespace, model: Model, found: Sequence[BestConfigurations], memory: float
) -> Iterator[str]:
    """Yield what is asked about configurations of each table, and of the fastest."""
    pair = options.compare or ()
    for outcome in found:
        if outcome.measured:
            title = f"{outcome.devices} devices, {options.engine}, best of {options.repeats} runs"
            yield measured_text([node for _, node in outcome.best], outcome.measured, title)
        known = range(1, len(outcome.best) + 1)
        if options.explain in known:
            yield explained(model, outcome, options.explain, memory)
        if pair and all(rank in known for rank in pair):
            yield compared(model, outcome, pair)
    if _printed(options):
        yield "\n" + settings_of(options, model, found)


def settings_of(
    options: argparse.Namespace, model: Model, found: Sequence[BestConfigurations]
) -> str:
    """Return how the fastest configuration is set up."""
    (configuration, _), _ = _fastest(found)
    return settings_text(model, configuration, options.settings)


def _fastest(found: Sequence[BestConfigurations]) -> Listed:
    """Return the fastest configuration on any number of devices."""
    return min((each.best[0] for each in found if each.best), key=lambda entry: entry[1].time)


def _none(found: Sequence[BestConfigurations], memory: float) -> str:
    """Return what is short if no configuration is feasible."""
    if ended := next((outcome.reason for outcome in found if not outcome.complete), ""):
        return f"no configuration was simulated before the search ended: {ended}"
    reasons = sum((outcome.refused for outcome in found), Counter[str]())
    failed = sum((outcome.failed for outcome in found), Counter[str]())
    reasons.update(failed)
    if simulated := sum(outcome.possible for outcome in found) - failed.total():
        reasons[f"their simulations need more than {bytes_text(memory)}"] += simulated
    listed = "; ".join(f"{count} as {reason}" for reason, count in reasons.most_common(4))
    smallest = min(outcome.smallest for outcome in found)
    text = f"no configuration is possible: {listed or 'there is none'}"
    if math.isfinite(smallest):
        text += (
            f". The smallest one needs {bytes_text(smallest)} of {bytes_text(memory)}: "
            "try more --devices, or --recompute full, --zero 3 and a smaller --microbatch"
        )
    return text


def _program_text(path: str, model: Model, found: Sequence[BestConfigurations]) -> str:
    """Return the program of the fastest configuration of all, for a file of a path."""
    (configuration, _), _ = _fastest(found)
    program = model.program(configuration)
    function = model.step.function
    command = f"collopt {path} -p '{configuration.passes}' -t simulate --function {function}"
    return f"// {command}\n{emit(program)}"


# --- arguments ----------------------------------------------------------------------------------


def _models(options: argparse.Namespace, sources: Sources, text: str | None) -> list[Model]:
    """Return the program on each of the machines."""
    path = Path(options.program)
    text = read_text(path) if text is None else text
    sources.add(str(path), text)
    sizes = dict(_named_number(option) for option in options.set_size)
    step = step_of(str(path), text, options.function, (), options.pipeline_axis)
    if options.global_batch is not None:
        sizes[step.batch] = options.global_batch
    machines = [step.machine]
    if options.machine:
        machines = [op.value() for option in options.machine for op in _machines(option, sources)]
    names = [machine.name for machine in machines]
    if len(set(names)) < len(names):
        raise UsageError(f"two machines have the same name: {', '.join(names)}; rename one")
    axis = unused_axis(step)
    division = division_of(step, axis) if axis else None
    given = (str(path), text, options.function, tuple(sizes.items()))
    sized = step_of(*given, options.pipeline_axis)
    return [
        Model(
            *given,
            machine,
            options.pipeline_axis,
            division,
            (*_added(options, sized, machine),),
            options.mfu == "causal",
        )
        for machine in machines
    ]


def _added(options: argparse.Namespace, step: TrainingStep, machine: Machine) -> Iterator[str]:
    """Yield the axes that the program lacks, and that are usual or named by --degree."""
    asked = {text.partition("=")[0] for text in options.degree} - {*step.axes}
    sizes = [level_sizes(machine, n) or () for n in _devices(options.devices, machine)]
    several = any(sum(size > 1 for size in own) > 1 for own in sizes)
    if REPLICA in asked or (several and REPLICA not in step.axes):
        yield REPLICA
    usual = (step.words or 0) >= LONG and CONTEXT not in step.axes
    if step.sequences and not step.context and (CONTEXT in asked or usual):
        yield CONTEXT


def _machines(text: str, sources: Sources) -> list[MachineOp]:
    machines = machines_of(text, sources)
    if not machines:
        raise DiagnosticError(Diagnostic(f"{text} has no machine to sweep on"))
    return machines


def _named_number(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isdecimal() or not int(number):
        raise UsageError(f"--set-size {text}: write {name}=NEW")
    return name, int(number)


def _space(options: argparse.Namespace, model: Model) -> ConfigurationSpace:
    step = model.step
    return replace(
        step.space(model.machine, _devices(options.devices, model.machine)),
        degrees=dict(_degree(text, step.axes) for text in options.degree),
        microbatch=_numbers("--microbatch", options.microbatch) if options.microbatch else (),
        schedules=_words("--schedules", options.schedules, {name: name for name in SCHEDULES}),
        chunks=_numbers("--chunks", options.chunks),
        recompute=_recompute(options.recompute, step),
        zero=_words("--zero", options.zero, {str(stage): stage for stage in STAGES_OF_ZERO}),
        sequence=_words("--sequence", options.sequence, {"whole": False, "divided": True}),
        uneven="uneven" in _words("--stages", options.stages, {x: x for x in ("even", "uneven")}),
    )


def _devices(text: str | None, machine: Machine) -> tuple[int, ...]:
    if text is None:
        return (machine.devices,)
    if not (match := re.fullmatch(r"([0-9]{1,9})\.\.([0-9]{1,9})", text)):
        return _numbers("--devices", text)
    first, last = int(match[1]), int(match[2])
    if not 0 < first <= last:
        raise UsageError(f"--devices {text}: the first number is the smaller one, from 1")
    return tuple(first * 2**n for n in range((last // first).bit_length()))


def _numbers(option: str, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}(,0*[1-9][0-9]{0,8})*", text):
        raise UsageError(f"{option} {text}: write whole numbers above 0, as in 1,2,4")
    return tuple(dict.fromkeys(map(int, text.split(","))))


def _words(option: str, text: str, known: Mapping[str, T]) -> tuple[T, ...]:
    words = dict.fromkeys(text.split(","))
    if unknown := [word for word in words if word not in known]:
        raise UsageError(f"{option} {text}: there is {', '.join(known)}, and no '{unknown[0]}'")
    return tuple(known[word] for word in words)


def _recompute(text: str, step: TrainingStep) -> tuple[Recompute, ...]:
    """Return what may be computed again; `attention` is all calls of it in layers, if
    there are any that are no kernel."""
    attention = tuple(name for name, is_one in step.called.items() if is_one)
    known: dict[str, Recompute] = {"none": False, "attention": attention, "full": True}
    for word in text.split(","):
        if word.startswith("@"):
            names = tuple(name.removeprefix("@") for name in word.split("+"))
            if unknown := [name for name in names if name not in step.called]:
                listed = ", ".join(f"@{name}" for name in step.called) or "none but kernels"
                raise UsageError(f"--recompute {word}: layers call {listed}, and no @{unknown[0]}")
            known[word] = names
    return tuple(x for x in dict.fromkeys(_words("--recompute", text, known)) if x != ())


def _degree(text: str, axes: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    name, _, numbers = text.partition("=")
    if name not in axes:
        raise UsageError(f"--degree {text}: the axes are {', '.join(axes)}")
    return name, _numbers(f"--degree {name}=", numbers)


def _memory(options: argparse.Namespace, machine: Machine) -> float:
    if options.memory is None:
        device = machine.slowest
        return device.memory if device and device.memory else math.inf
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z]+)\s*", options.memory)
    if not match or match[2] not in Quantity.BYTES.units:
        raise UsageError(f"--memory {options.memory}: write a size such as `40 GB`")
    return Quantity.BYTES.parse(match[1], match[2])
