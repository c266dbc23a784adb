"""Imports on demand, so that the tools start fast."""

import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Lazy(Generic[_T]):
    """A function that imports a class of a module."""

    module: str
    name: str

    def __call__(self) -> _T:
        """Return the class."""
        return getattr(import_module(self.module), self.name)

    def docstring(self) -> str:
        """Return the docstring of the class, as the source has it: nothing is imported."""
        spec = find_spec(self.module)
        assert spec is not None and spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        match = re.search(rf'^class {self.name}\b.*?:\n    """(.*?)"""', source, re.S | re.M)
        return inspect.cleandoc(match[1]) if match else ""


def networkx() -> Any:
    """Import networkx, which is slow to load and has no type stubs."""
    return import_module("networkx")
