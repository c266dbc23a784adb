"""Numbers of children and devices, which may be larger than any machine."""

from collections.abc import Iterable

_LARGE = 2**64


def saturated_product(sizes: Iterable[int]) -> int:
    """Return the product of positive sizes, or 2^64 if it is at least that large."""
    total = 1
    for size in sizes:
        total *= size
        if total >= _LARGE:
            return _LARGE
    return total


def devices_text(number: int) -> str:
    """Return a number of devices as text: ``1 device``, ``2 devices``."""
    return "1 device" if number == 1 else f"{number} devices"


def product_text(total: int) -> str:
    """Return a product of ``saturated_product`` as text."""
    return str(total) if total < _LARGE else "2^64 or more"
