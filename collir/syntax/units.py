"""Quantities as people write them (``8 GB/s``, ``20 us``), converted to and from SI floats.

Decimal arithmetic makes both conversions exact: a printed quantity reads back as the same double.
"""

from collections.abc import Sequence
from decimal import Decimal
from enum import Enum

_DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}


def _scales(unit: str, factor: Decimal = Decimal(1)) -> dict[str, Decimal]:
    scales = {p + unit: Decimal(10) ** e * factor for p, e in _DECIMAL.items()}
    return scales | {p + unit: Decimal(2**e) * factor for p, e in _BINARY.items()}


class Quantity(Enum):
    """A kind of quantity.

    Attributes:
        units: the size of each unit, in SI units.
        printed: the units that are used in print, largest first.
        example: a text for error messages.
    """

    BANDWIDTH = (
        {
            unit + "/s": scale
            for unit, scale in (
                _scales("B") | _scales("b", Decimal("0.125")) | _scales("bit", Decimal("0.125"))
            ).items()
        },
        ("PB/s", "TB/s", "GB/s", "MB/s", "KB/s", "B/s"),
        "a bandwidth such as `8 GB/s` or `100 Gbit/s`",
    )
    TIME = (
        {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6"), "ns": Decimal("1e-9")},
        ("s", "ms", "us", "ns"),
        "a time such as `20 us` or `700 ns`",
    )
    BYTES = (_scales("B"), ("PB", "TB", "GB", "MB", "KB", "B"), "a size such as `40 GiB`")
    COMPUTE = (
        {p + "FLOP/s": Decimal(10) ** e for p, e in _DECIMAL.items()},
        ("PFLOP/s", "TFLOP/s", "GFLOP/s", "MFLOP/s", "KFLOP/s", "FLOP/s"),
        "a rate such as `312 TFLOP/s`",
    )
    POWER = (
        {"W": Decimal(1), "kW": Decimal(1000), "MW": Decimal(10) ** 6},
        ("MW", "kW", "W"),
        "a power such as `700 W`",
    )
    PRICE = ({"USD/h": Decimal(1)}, ("USD/h",), "a price such as `2.5 USD/h`")

    def __init__(self, units: dict[str, Decimal], printed: tuple[str, ...], example: str):
        self.units = units
        self.printed = printed
        self.example = example

    def parse(self, number: str, unit: str) -> float:
        """Return the SI value of ``number unit``.

        Raises:
            KeyError: the unit is not a unit of this kind of quantity.
        """
        return float(Decimal(number) * self.units[unit])

    def format(self, value: float) -> str:
        """Return the value in the largest unit in which it is at least 1.

        A number of bytes that is a multiple of 1 KiB, but not of 1 KB, is an exception: it is given
        in the largest of KiB, MiB and so on that divides it.
        """
        exact = Decimal(repr(float(value)))
        if self is Quantity.BYTES and exact and exact % 1000:
            for prefix, exponent in reversed(_BINARY.items()):
                if exact % (1 << exponent) == 0:
                    return f"{int(exact) >> exponent} {prefix}B"
        for unit in self.printed:
            if abs(exact) >= self.units[unit]:
                break
        else:
            unit = self.printed[-1] if exact else self.printed[0]
        return f"{plain(exact / self.units[unit])} {unit}"


def plain(number: Decimal) -> str:
    """Return a decimal without trailing zeros, and without an exponent if the text is short.

    An integer that no double equals keeps its exponent: ``Lowering.number`` accepts it with an
    exponent, but not as a plain row of digits.
    """
    text = f"{number.normalize():f}"
    short = len(text) <= 25 and ("." in text or float(text) == int(text))
    return text if short else str(number.normalize())


def digits(value: float) -> str:
    """Return a value to three significant digits; from 1000 on, to the nearest integer."""
    if value >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def unit_of(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the largest unit in which a value, as ``digits`` rounds it, is at least 1.

    If there is none, return the smallest unit.

    Args:
        units: the size and the name of each unit, largest first.
    """
    return next((unit for unit in units if value >= unit[0] * 0.9995), units[-1])


def seconds_unit(seconds: float) -> tuple[float, str]:
    """Return the unit in which a time is shown: the seconds of the unit, and its name."""
    return unit_of(seconds, _TIMES)


def seconds_text(seconds: float) -> str:
    """Return a time such as ``12.3 us``."""
    factor, unit = seconds_unit(seconds)
    return f"{digits(seconds / factor)} {unit}"


_SIZES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B"))


def bytes_unit(size: float) -> tuple[float, str]:
    """Return the unit in which people read a size: its bytes, and its name."""
    return unit_of(size, _SIZES)


def bytes_text(size: float) -> str:
    """Return a size such as ``1.05 MB``, in powers of 1000; an integer without a point."""
    factor, unit = bytes_unit(size)
    value = size / factor
    shown = f"{value:.0f}" if value == round(value) else digits(value)
    return f"{shown} {unit}"
