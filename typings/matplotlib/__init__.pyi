"""The part of matplotlib that is used here; its own types leave keyword arguments open."""

from collections.abc import Mapping
from contextlib import AbstractContextManager

from matplotlib.colors import ListedColormap

colormaps: Mapping[str, ListedColormap]

def rc_context(rc: Mapping[str, object]) -> AbstractContextManager[None]: ...
