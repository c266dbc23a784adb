"""The commands, and the Python API that mirrors them."""
