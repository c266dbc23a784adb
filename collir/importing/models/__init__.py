"""Models of other frameworks as programs: their graphs, rows of operations, loops over layers."""
