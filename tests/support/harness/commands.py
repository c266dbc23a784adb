"""Commands that tests run in this process: our tools, and the scripts of benchmarks/papers."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from collir.tools import collir, collopt, collrun

Tool = Callable[[Sequence[str]], int]

TOOLS: dict[str, Tool] = {"collir": collir.main, "collopt": collopt.main, "collrun": collrun.main}


def tool_of(words: Sequence[str]) -> tuple[Tool, Sequence[str]] | None:
    """Return the tool of a command and its arguments; None if it is another program's."""
    match words:
        case ["python", script, *arguments] if "papers" in (path := Path(script)).parts:
            return import_module(f"{path.parent.name}.{path.stem}").main, arguments
        case [name, *arguments] if name in TOOLS:
            return TOOLS[name], arguments
        case _:
            return None
