"""The executor: runs programs on the numpy buffers of all devices, step by step by definition."""
