"""The part of numba that is used here; it ships no types of its own."""

from collections.abc import Callable
from typing import TypeVar

_Function = TypeVar("_Function", bound=Callable[..., object])

def njit(*, nogil: bool = ..., cache: bool = ...) -> Callable[[_Function], _Function]: ...
