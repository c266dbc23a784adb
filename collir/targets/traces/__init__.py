"""What other simulators replay: execution traces of all ranks."""
