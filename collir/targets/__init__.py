"""The targets that print a module: code that runs, and reports."""
