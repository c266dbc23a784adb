"""Devices of ``.coll``: rates, memory, kernels and software."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from lark import Token

from collir.dialects.machine import DeviceAttr
from collir.machine import SHARES, Device, Efficiency, Execution, MachineError
from collir.syntax.lowering import Lowering
from collir.syntax.trees import SyntaxNode, SyntaxTree, is_tree
from collir.syntax.units import Quantity

_OF_KERNELS = {
    "launch": "a time, as in `launch = 5 us`",
    "tile": "the rows and columns of a tile, as in `tile = 128 x 128`",
    "units": "the number of processors, as in `units = 108`",
    "depth": "a length of a sum, as in `depth = 64`",
    "call": "a time, as in `call = 5 us`",
    "array": "a time, as in `array = 800 ns`",
    "start": "a time, as in `start = 2 us`",
    "packing": "a bandwidth, as in `packing = 10 GB/s`",
    "copies": "how operands are read that products cannot: `copies = made`",
    "maps": "how maps run: `maps = apart`",
    "issue": "a time, as in `issue = 10 us`",
    "sync": "a time, as in `sync = 50 us`",
    "power": "watts, as in `power = 700 W`",
    "price": "dollars in an hour, as in `price = 2.5 USD/h`",
}
"""The settings of a device, each with an example."""

_TIMES = {
    "launch": "a launch",
    "call": "a call",
    "array": "an array of a call",
    "start": "the start of a product",
    "issue": "the issue of a kernel",
    "sync": "the sync of a collective",
}
_WORDS_OF_EXECUTION = {"copies": "made", "maps": "apart"}
_OF_EXECUTION = tuple(field.name for field in fields(Execution))
"""The clauses of a device about its software."""


class DeviceLowering(Lowering):
    """The lowering of the devices of machines."""

    def device(self, clauses: Sequence[SyntaxTree | None]) -> DeviceAttr | None:
        """Return a device, or None after an error."""
        values: dict[str, Any] = {}
        seen: dict[str, Token] = {}
        for item in filter(None, clauses):
            token = item.tokens()[0]
            what = str(token) if item.data == "setting" else item.data
            if what in seen:
                self.error(token, f"{what} is given twice")
            seen.setdefault(what, token)
            values |= self.clause(what, item)
        if None in values.values():
            return None
        rates = values.pop("rates", ())
        size, speed, reduction = (values.pop(k, None) for k in ("size", "speed", "reduction"))
        paid = {k: values.pop(k) for k in ("power", "price") if k in values}
        try:
            execution = Execution(**{k: values.pop(k) for k in _OF_EXECUTION if k in values})
            efficiency = Efficiency(**values)
            return DeviceAttr.of(
                Device(rates, size, speed, reduction, efficiency, execution, **paid)
            )
        except MachineError as error:
            self.error(next(iter(seen.values())), str(error))
            return None

    def clause(self, what: str, item: SyntaxTree) -> dict[str, Any]:
        """Return the values of a clause by name, None where there is an error."""
        match item.data:
            case "setting":
                return {what: self.kernel_setting(*item.children)}
            case "efficiency":
                return self.efficiency(item)
            case "streams":
                return {what: self.streams(item)}
            case "elements":
                return {what: self.elements(item)}
            case "compute":
                return {"rates": self.rates(item)}
            case "reduction":
                rate = self.quantity(item.children[1], Quantity.BANDWIDTH, "the reduction rate")
                return {what: rate}
            case _:
                _, size, speed = item.children
                values = {"size": self.quantity(size, Quantity.BYTES, "the memory size")}
                if speed:
                    bandwidth = self.quantity(speed, Quantity.BANDWIDTH, "the memory bandwidth")
                    values["speed"] = bandwidth
                return values

    def rates(self, tree: SyntaxTree) -> tuple[tuple[str, float], ...]:
        """Return the compute rates without errors, by element type."""
        rates: dict[str, float] = {}
        for dtype, quantity in (rate.children for rate in tree.children):
            value = self.quantity(quantity, Quantity.COMPUTE, "a compute rate")
            if str(dtype) in rates:
                self.error(dtype, f"the compute rate of {dtype} is given twice")
            elif value is not None:
                rates[str(dtype)] = value
        return tuple(rates.items())

    def efficiency(self, tree: SyntaxTree) -> dict[str, float | None]:
        """Return the fractions of the rates of a device, None where there is an error."""
        shares: dict[str, float | None] = {}
        for name, number in (share.children for share in tree.children[1:]):
            if str(name) not in SHARES:
                hint = self.suggest(name, SHARES)
                self.error(name, f"an efficiency is that of {', '.join(SHARES)}{hint}")
            elif str(name) in shares:
                self.error(name, f"the efficiency of {name} is given twice")
            else:
                shares[str(name)] = self.number(number)
        return shares

    def streams(self, tree: SyntaxTree) -> tuple[tuple[float, float], ...] | None:
        """Return the bytes and bandwidths of streams, or None after an error."""
        streams: list[tuple[float, float]] = []
        for size, rate in (stream.children for stream in tree.children[1:]):
            bytes_ = self.quantity(size, Quantity.BYTES, "the size of a stream")
            bandwidth = self.quantity(rate, Quantity.BANDWIDTH, "the bandwidth of a stream")
            if bytes_ is None or bandwidth is None:
                return None
            streams.append((bytes_, bandwidth))
        return tuple(streams)

    def elements(self, tree: SyntaxTree) -> tuple[tuple[str, str, float], ...] | None:
        """Return the times of elements by operation and type, or None after an error."""
        elements: list[tuple[str, str, float]] = []
        for operation, dtype, time in (element.children for element in tree.children[1:]):
            seconds = self.quantity(time, Quantity.TIME, "the time of an element")
            if seconds is None:
                return None
            elements.append((str(operation), str(dtype), seconds))
        return tuple(elements)

    def kernel_setting(self, key: Token, value: SyntaxNode) -> object:
        """Return the value of a setting of a device, or None after an error."""
        if (example := _OF_KERNELS.get(str(key))) is None:
            clauses = ("compute", "memory", "reduction", "efficiency", "streams", "elements")
            known = (*clauses, *_OF_KERNELS)
            hint = self.suggest(key, known)
            self.error(key, f"a device has no '{key}': it has {', '.join(known)}{hint}")
        elif key in _TIMES and is_tree(value, "quantity"):
            return self.quantity(value, Quantity.TIME, f"the time of {_TIMES[str(key)]}")
        elif key == "power" and is_tree(value, "quantity"):
            return self.quantity(value, Quantity.POWER, "the power")
        elif key == "price" and is_tree(value, "quantity"):
            return self.quantity(value, Quantity.PRICE, "the price")
        elif key == "packing" and is_tree(value, "quantity"):
            return self.quantity(value, Quantity.BANDWIDTH, "the bandwidth of packing")
        elif str(value) == _WORDS_OF_EXECUTION.get(str(key)):
            return True
        elif key == "tile" and is_tree(value, "shape") and len(value.children) == 2:
            sides = tuple(self.integer(side) for side in value.children)
            return None if None in sides else sides
        elif key in ("units", "depth") and isinstance(value, Token) and value.type == "NUMBER":
            return self.integer(value)
        else:
            self.error(key, f"{key} is {example}")
        return None
