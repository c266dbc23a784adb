"""``collir import``: the user's own model as a program."""

import argparse
import importlib
import importlib.util
import inspect
import json
import math
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import collir
from collir.importing.chakra.program import program_of
from collir.importing.chakra.traces import read_traces
from collir.importing.models.export import DTYPES
from collir.importing.models.hugging_face import HeadError, model_of
from collir.importing.models.imported import MACHINE, MESH, PRECISIONS, Imported
from collir.importing.models.jax_functions import import_jax
from collir.importing.models.torch_models import import_torch
from collir.importing.models.training import OPTIMIZERS
from collir.importing.stablehlo.program import import_stablehlo
from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position
from collir.targets.reports.text import seconds_text
from collir.tools.hlo import import_hlo
from collir.tools.hlo_options import add_mesh, axes_of, text_of
from collir.tools.shell import UsageError, write_whole

_INSTALL = {
    "jax": "pip install jax",
    "torch": "pip install torch",
    "transformers": "pip install transformers",
}

_TYPE = re.compile(r"(?:(?P<name>\w+)=)?(?P<dtype>\w+)\[(?P<sizes>[\d, ]*)\]")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    kinds = parser.add_subparsers(metavar="KIND", dest="kind", required=True)
    torch = kinds.add_parser("torch", help="a torch module", description="A torch module.")
    torch.add_argument(
        "factory", metavar="MODULE:FACTORY", help="a function of a Python file or module that "
        "returns a torch module, or a tuple of it and its arguments",
    )  # fmt: skip
    torch.add_argument(
        "--args", nargs="+", metavar="TYPE", default=[],
        help="the types of the arguments, such as 'i64[8, 1024]' or 'labels=i64[8, 1024]'",
    )  # fmt: skip
    jax = kinds.add_parser(
        "jax", help="a function of JAX", description="A function of JAX, with pytrees of weights.",
    )  # fmt: skip
    jax.add_argument(
        "factory", metavar="MODULE:FUNCTION", help="a function of a Python file or module: of "
        "arrays, or one without arguments that returns a tuple of a function and its arguments",
    )  # fmt: skip
    jax.add_argument(
        "--args", nargs="+", metavar="TYPE", default=[],
        help="the types of the arguments, such as 'i32[8, 1024]'; a name of the module stands for "
        "its value, or for what it returns",
    )  # fmt: skip
    hf = kinds.add_parser(
        "hf", help="a model of transformers, from its configuration",
        description="A model of transformers, from its configuration: no weights, no network.",
    )  # fmt: skip
    hf.add_argument("config", metavar="CONFIG", help="a config.json, or a folder with one")
    hf.add_argument("--batch", type=_positive, default=8, metavar="N", help="default: 8")
    hf.add_argument("--seq", type=_positive, metavar="N", help="positions (default: 2048 at most)")
    hf.add_argument("--head", metavar="CLASS", help="such as LlamaForCausalLM (default: the first "
                    "of the configuration's architectures)")  # fmt: skip
    hf.add_argument("--pad-vocab", type=_positive, default=1, metavar="N", help="add words that "
                    "get no chance, to a multiple of N, so that axes divide them")  # fmt: skip
    hlo = kinds.add_parser(
        "hlo", help="a program of XLA, from its text",
        description="A program that XLA printed after its SPMD partitioner, optimised or not.",
    )  # fmt: skip
    hlo.add_argument("file", metavar="FILE", help="the text of a module; - for standard input")
    add_mesh(hlo)
    trace = kinds.add_parser(
        "trace", help="a trace of a program that ran",
        description="A step of training of a trace: its computing as it was, its collectives as "
        "steps, on a machine whose network is fitted to them.",
    )  # fmt: skip
    trace.add_argument("files", nargs="+", metavar="FILE", help="traces of one or all ranks")
    trace.add_argument(
        "--mesh", metavar="AXES", help="the axes of the mesh, in order, as in data=2,model=4 "
        "(default: the coarsest that explain all groups)",
    )  # fmt: skip
    trace.add_argument("--machine", default="", help="default: @dgx_h100 of as many devices, or "
                       "processes of a host if CPUs ran it")  # fmt: skip
    chakra = kinds.add_parser(
        "chakra", help="execution traces of Chakra, of all ranks",
        description="Execution traces of Chakra of ranks that run the same: computations as they "
        "were, collectives as steps.",
    )  # fmt: skip
    chakra.add_argument("files", nargs="+", metavar="FILE", help="NAME.0.et, NAME.1.et and so on, "
                        "and NAME.json with the groups; or NAME alone")  # fmt: skip
    add_mesh(chakra)
    stablehlo = kinds.add_parser(
        "stablehlo", help="a module of StableHLO, from its text",
        description="The main function of a module of StableHLO, as jax.jit(f).lower(...).as_text("
        "debug_info=True) prints it; the generic form of MLIR is read too.",
    )  # fmt: skip
    stablehlo.add_argument(
        "file", metavar="FILE", help="the text of a module; - for standard input"
    )
    stablehlo.add_argument("--mesh", metavar="AXES", help="the axes of the mesh of JAX, in order, "
                           "as in data=2,model=4 (default: those of the text)")  # fmt: skip
    stablehlo.add_argument("--machine", default="", help=f"default: {MACHINE}")
    stablehlo.add_argument("--optimizer", choices=list(OPTIMIZERS), help="add a training step")
    stablehlo.add_argument("--clip", action="store_true", help="clip gradients in the step")
    jax.add_argument("--devices", type=_positive, default=8, metavar="N", help="devices that the "
                     "module finds, for its meshes (default: 8)")  # fmt: skip
    for kind in (torch, jax, hf):
        kind.add_argument("--optimizer", choices=list(OPTIMIZERS), help="add a training step")
        kind.add_argument(
            "--precision", choices=list(PRECISIONS), help="what the model computes in"
        )
        kind.add_argument("--clip", action="store_true", help="clip gradients in the step")
        own = kind is jax  # whose mesh may be that of the function
        kind.add_argument("--machine", default="" if own else MACHINE, help=f"default: {MACHINE}")
        kind.add_argument(
            "--mesh", default="" if own else MESH,
            help=f"its axes, the batch's first (default: {'those of its mesh, or ' * own}{MESH})",
        )  # fmt: skip
    for kind in (torch, hf):
        kind.add_argument(
            "--capacity", type=_factor, default=0.0, metavar="FACTOR",
            help="give experts places for FACTOR times an even share of the words, and drop others "
            "(default: all experts compute all words)",
        )  # fmt: skip
    for kind in (torch, jax, hf, hlo, stablehlo, trace, chakra):
        kind.add_argument("--debug", action="store_true", help="show tracebacks of our errors")
        kind.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
        kind.add_argument("--force", action="store_true", help="overwrite FILE")


def run(options: argparse.Namespace) -> int:
    """Write the program; return the exit status."""
    if getattr(options, "clip", False) and not options.optimizer:
        raise UsageError("--clip goes with --optimizer")
    if options.output and Path(options.output).is_file() and not options.force:
        message = f"{options.output} exists: overwrite it with --force, or choose another name"
        raise DiagnosticError(Diagnostic(message))
    if options.kind == "jax":
        return _run_jax(options)
    if options.kind == "hlo":
        return _run_hlo(options)
    if options.kind == "trace":
        return _run_trace(options)
    if options.kind == "chakra":
        return _run_chakra(options)
    if options.kind == "stablehlo":
        return _run_stablehlo(options)
    torch = _needed("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.kind == "torch":
            module, args, kwargs = _made(options.factory, options.args, torch)
            what = subject = options.factory
        else:
            module, args, kwargs = _configured(options, torch)
            subject = options.config
            what = f"{type(module).__name__} of {subject}"
            if options.pad_vocab > 1:
                count = module.get_output_embeddings().weight.shape[0]
                remark = f"the scores of words are {count}; those that were added get no chance"
                print(f"{options.config}: remark: {remark}", file=sys.stderr)
        imported = import_torch(
            module, args, kwargs, optimizer=options.optimizer or "",
            precision=options.precision or "", clip=options.clip, capacity=options.capacity,
            machine=options.machine, mesh=options.mesh,
            comment=f"{what}, by\n  {_command(options, subject)}",
        )  # fmt: skip
    collir.parse(imported.text, options.output or "<imported>")
    if imported.has_experts and not options.capacity:
        print(
            f"{what}: remark: the price is that of words which are spread evenly over the experts; "
            "--capacity 1.25 gives each of them places for 1.25 times an even share",
            file=sys.stderr,
        )
    _write(imported.text, options.output)
    return 0


def _run_jax(options: argparse.Namespace) -> int:
    """Write the program of a function of JAX."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if "device_count" not in flags:
        count = f"--xla_force_host_platform_device_count={options.devices}"
        os.environ["XLA_FLAGS"] = f"{flags} {count}".strip()
    jax = _needed("jax")
    function, args = _of_jax(options.factory, options.args, jax)
    imported = import_jax(
        function, *args, optimizer=options.optimizer or "", precision=options.precision or "",
        clip=options.clip, machine=options.machine, mesh=options.mesh,
        comment=f"{options.factory}, by\n  {_command(options, options.factory)}",
    )  # fmt: skip
    return _checked(imported, options.output)


def _run_trace(options: argparse.Namespace) -> int:
    """Write the program of a trace, and say what of it is fitted."""
    # Imported here because scipy is slow to import.
    from collir.tools.trace_driver import trace_of
    from collir.tools.trace_import import import_trace

    trace = trace_of(options.files)
    imported = import_trace(trace, options.machine, options.mesh, _command(options, *options.files))
    took, takes = seconds_text(imported.measured), seconds_text(imported.predicted)
    said = f"a step took {took}, and takes {takes} here"
    return _written(imported.text, [said, *imported.remarks], options, options.files[0])


def _run_chakra(options: argparse.Namespace) -> int:
    """Write the program of execution traces."""
    traces = read_traces(options.files)
    file = traces.ranks[0].file
    name = re.sub(r"\W", "_", Path(file).name.removesuffix(".0.et")) or "step"
    imported = program_of(
        traces, f"_{name}" if name[0].isdigit() else name, machine=options.machine,
        axes=axes_of(options.mesh), comment=f"Traces of {len(traces.ranks)} ranks, by\n  "
        f"{_command(options, *options.files)}",
    )  # fmt: skip
    collir.parse(imported.text, options.output or "<imported>")
    return _written(imported.text, imported.remarks, options, file)


def _run_hlo(options: argparse.Namespace) -> int:
    """Write a program of XLA, and say what of it is typed."""
    file, text = text_of(options.file)
    imported = import_hlo(
        text, file, mesh=axes_of(options.mesh), machine=options.machine,
        comment=f"{file}, by\n  {_command(options, file)}",
    )  # fmt: skip
    what = f"{imported.typed} of {imported.sent} collectives are typed"
    print(f"{file}: remark: {what}", file=sys.stderr)
    for problem in imported.problems:
        print(f"{file}: warning: {problem}", file=sys.stderr)
    return _written(imported.text, imported.remarks, options, file)


def _run_stablehlo(options: argparse.Namespace) -> int:
    """Write the program of a module of StableHLO."""
    file, text = text_of(options.file)
    imported = import_stablehlo(
        text, file, optimizer=options.optimizer or "", clip=options.clip, machine=options.machine,
        mesh=axes_of(options.mesh), comment=f"{file}, by\n  {_command(options, file)}",
    )  # fmt: skip
    return _checked(imported, options.output)


def _written(text: str, remarks: Sequence[str], options: argparse.Namespace, file: str) -> int:
    """Write a program, and say what is to be said of it; return the exit status."""
    for remark in remarks:
        print(f"{file}: remark: {remark}", file=sys.stderr)
    _write(text, options.output)
    return 0


def _checked(imported: Imported, output: str | None) -> int:
    """Check a program, say what is not as it was, and write it."""
    collir.parse(imported.text, output or "<imported>")
    for remark in imported.remarks:
        print(f"remark: {remark}", file=sys.stderr)
    _write(imported.text, output)
    return 0


def _write(text: str, output: str | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    write_whole(output, text)


def _command(options: argparse.Namespace, *subjects: str) -> str:
    """Return the command line that makes the program of files or a factory again, but for its
    output."""
    words = ["collir", "import", options.kind, *subjects]
    for name in ("args", "head", "batch", "seq", "pad_vocab", "optimizer", "precision",
                 "capacity", "machine", "mesh"):  # fmt: skip
        value = getattr(options, name, None)
        if value and value != {"machine": MACHINE, "mesh": MESH, "pad_vocab": 1}.get(name):
            words += [
                f"--{name.replace('_', '-')}",
                *(value if isinstance(value, list) else [str(value)]),
            ]
    return shlex.join(words + ["--clip"] * getattr(options, "clip", False))


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return value


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return int(text)


def _needed(name: str) -> ModuleType:
    """Return a package that not everybody has.

    Raises:
        DiagnosticError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"this needs {name}, which is not installed: {_INSTALL[name]}"
        raise DiagnosticError(Diagnostic(message)) from error


# --- a function of the user -----------------------------------------------------------------------


def _made(
    factory: str, types: Sequence[str], torch: Any
) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """Return the module that a function of the user makes, and its arguments."""
    made = _called(_function(factory), factory)
    listed: list[Any] = list(made) if isinstance(made, tuple) else [made]  # pyright: ignore
    module, args, kwargs = listed[0], list[Any](), dict[str, Any]()
    for part in listed[1:]:
        if isinstance(part, dict):
            kwargs |= part
        else:
            args += part if isinstance(part, list | tuple) else [part]  # pyright: ignore
    if not isinstance(module, torch.nn.Module):
        message = f"{factory} returns a {type(module).__name__}, not a torch.nn.Module"
        raise DiagnosticError(Diagnostic(message))
    if types:
        args, kwargs = _arguments(types, module, torch)
    if not args and not kwargs:
        message = (
            f"{factory} returns a module without arguments: return (module, args) or (module, "
            "kwargs), or give their types: --args 'i64[8, 1024]'"
        )
        raise DiagnosticError(Diagnostic(message))
    return module, args, kwargs


def _function(factory: str) -> Callable[[], Any]:
    file, colon, name = factory.rpartition(":")
    if not colon or not file or not name:
        raise UsageError(f"'{factory}' is not MODULE:FACTORY, such as model.py:make")
    try:
        module = _loaded(file)
    except DiagnosticError:
        raise
    except Exception as error:
        raise _raised(error, f"{file} cannot be imported") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise DiagnosticError(Diagnostic(f"{file} has no function {name}"))
    return function


def _loaded(file: str) -> ModuleType:
    if not file.endswith(".py"):
        sys.path.insert(0, "")
        try:
            return importlib.import_module(file)
        finally:
            sys.path.remove("")
    if not Path(file).is_file():
        raise DiagnosticError(Diagnostic(f"there is no file {file}"))
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    folder = str(Path(file).resolve().parent)
    if folder not in sys.path:  # the modules beside it, as where Python runs the file
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module


def _called(function: Callable[[], Any], factory: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise _raised(error, f"{factory} raises an error") from error


def _raised(error: Exception, what: str) -> DiagnosticError:
    """Return the error of a user's code, at the last line of it that is not of a package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame for frame in frames
        if "site-packages" not in frame.filename and "importlib" not in frame.filename
        and Path(frame.filename) != Path(__file__)
    ]  # fmt: skip
    position = None
    if isinstance(error, SyntaxError) and error.filename:
        position = Position(error.filename, error.lineno or 1, error.offset or 1)
    elif own:
        frame = own[-1]
        position = Position(frame.filename, frame.lineno or 1, (frame.colno or 0) + 1)
    return DiagnosticError(Diagnostic(f"{what}: {type(error).__name__}: {error}", position))


def _arguments(types: Sequence[str], module: Any, torch: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return tensors of types, on the device of the module."""
    device = next((x.device for x in module.parameters()), torch.device("cpu"))
    names = {short: name for name, short in DTYPES.items()}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in types:
        match = _TYPE.fullmatch(text)
        if match is None or match["dtype"] not in names:
            raise UsageError(f"'{text}' is no type of an argument, such as 'i64[8, 1024]'")
        sizes = [int(size) for size in match["sizes"].split(",") if size.strip()]
        tensor = torch.zeros(sizes, dtype=getattr(torch, names[match["dtype"]]), device=device)
        if match["name"]:
            kwargs[match["name"]] = tensor
        else:
            args.append(tensor)
    return args, kwargs


def _of_jax(factory: str, types: Sequence[str], jax: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function of JAX, and its arguments."""
    function, module = _function(factory), _loaded(factory.rpartition(":")[0])
    if types:
        return function, [_jax_argument(text, module, factory, jax) for text in types]
    needed = [
        name for name, x in inspect.signature(function).parameters.items()
        if x.default is x.empty and x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    if needed:
        raise DiagnosticError(Diagnostic(
            f"{factory} takes {', '.join(needed)}: give their types, --args 'f32[8, 64]', where a "
            "name of the module stands for its value or what it returns; or name a function "
            "without arguments that returns (function, arguments...)"
        ))  # fmt: skip
    made = _called(function, factory)
    listed: list[Any] = list(made) if isinstance(made, tuple) else [made]  # pyright: ignore
    if not callable(listed[0]) or len(listed) < 2:
        raise DiagnosticError(Diagnostic(
            f"{factory} returns a {type(listed[0]).__name__}, not a tuple of a function and its "
            "arguments"
        ))  # fmt: skip
    args: Any = listed[1:]
    return listed[0], [*args[0]] if len(args) == 1 and type(args[0]) is tuple else args


def _jax_argument(text: str, module: ModuleType, factory: str, jax: Any) -> Any:
    """Return an argument: the type of an array, or a value of a module."""
    names = {short: name for name, short in DTYPES.items()}
    match = _TYPE.fullmatch(text)
    if match is not None and match["dtype"] in names:
        sizes = [int(size) for size in match["sizes"].split(",") if size.strip()]
        return jax.ShapeDtypeStruct(sizes, names[match["dtype"]])
    if not text.isidentifier() or not hasattr(module, text):
        raise UsageError(
            f"'{text}' is no type of an argument, such as 'f32[8, 64]', and no name in "
            f"{factory.rpartition(':')[0]}"
        )
    value = getattr(module, text)
    return jax.eval_shape(value) if callable(value) else value


# --- a configuration of transformers --------------------------------------------------------------


def _configured(
    options: argparse.Namespace, torch: Any
) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    _needed("transformers")
    path = Path(options.config)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DiagnosticError(Diagnostic(f"cannot read {path}: {reason}")) from error
    except ValueError as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        position = Position(str(path), line, column)
        raise DiagnosticError(Diagnostic(f"this is no JSON: {error}", position)) from error
    try:
        module, kwargs = model_of(
            config, options.head or "", options.batch, options.seq, options.pad_vocab
        )
    except HeadError as error:
        raise DiagnosticError(Diagnostic(str(error), Position(str(path), 1, 1))) from error
    except Exception as error:
        message = f"transformers makes no model of this: {type(error).__name__}: {error}"
        raise DiagnosticError(Diagnostic(message, Position(str(path), 1, 1))) from error
    return module, (), kwargs
