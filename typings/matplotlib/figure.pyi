from collections.abc import Sequence
from io import StringIO
from typing import Literal, overload

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from numpy.typing import NDArray

class Figure:
    def __init__(self, *, figsize: tuple[float, float], layout: str, dpi: float = ...) -> None: ...
    def legend(self, *, handles: Sequence[Artist], **settings: object) -> object: ...
    def savefig(self, fname: StringIO, *, format: str, metadata: dict[str, None]) -> None: ...
    @overload
    def subplots(self) -> Axes: ...
    @overload
    def subplots(
        self,
        nrows: int,
        ncols: int = ...,
        *,
        squeeze: Literal[False],
        gridspec_kw: dict[str, list[float]] = ...,
    ) -> NDArray[np.object_]: ...
    @overload
    def subplots(self, nrows: Literal[1], ncols: Literal[2]) -> tuple[Axes, Axes]: ...
