"""The machine as the cost models see it: groups of ranks, and the load on ports and links."""
