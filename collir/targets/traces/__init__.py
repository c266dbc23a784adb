"""The input of other simulators: execution traces of all ranks."""
