from collections.abc import Sequence

Colour = tuple[float, float, float]

class ListedColormap:
    colors: Sequence[Colour]

def to_rgb(c: str | Colour) -> Colour: ...
