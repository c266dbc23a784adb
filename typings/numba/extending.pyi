from collections.abc import Callable
from typing import Any

from .types import Type

def intrinsic(
    func: Callable[[object, Type], tuple[object, Callable[..., object]]],
) -> Callable[[Any], int]: ...
