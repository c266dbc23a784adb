"""The executor: programs run on numpy buffers of every device, each step by its definition."""
