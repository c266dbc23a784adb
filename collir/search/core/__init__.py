"""One worker's search of a tree: problems, goals, bounds, depth-first and best-first."""
