from collections.abc import Sequence

from matplotlib.artist import Artist

class LineCollection(Artist):
    def __init__(
        self, segments: Sequence[Sequence[tuple[float, float]]], **settings: object
    ) -> None: ...
