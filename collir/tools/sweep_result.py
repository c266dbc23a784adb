"""The result of a sweep in Python: a dictionary that a notebook shows as a page."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from collir.syntax.units import seconds_text
from collir.tools.notebook import framed


class SweepResult(dict[str, Any]):
    """The configurations that a sweep found, as ``collir sweep --json`` prints them."""

    def __init__(self, document: Mapping[str, Any], page: Callable[[], str] | None = None):
        """Take a document and, if it has one, the function that makes its page."""
        super().__init__(document)
        self._page = page

    def __repr__(self) -> str:
        best = min(self._best(), key=lambda each: each["seconds"], default=None)
        if best is None:
            return "<SweepResult: no configuration>"
        count = sum(1 for _ in self._best())
        time, devices = seconds_text(best["seconds"]), best["devices"]
        return f"<SweepResult: {time} on {devices} devices is the fastest of {count} listed>"

    def _best(self) -> Iterator[Mapping[str, Any]]:
        """Yield the best configurations on all machines."""
        for document in self.get("machines", [self]):
            yield from document.get("best", [])

    def __reduce__(self) -> tuple[type["SweepResult"], tuple[dict[str, Any]]]:
        """Return how it is pickled and copied: without its page."""
        return SweepResult, (dict(self),)

    def _repr_html_(self) -> str | None:
        return framed(self._page, repr(self)) if self._page else None
