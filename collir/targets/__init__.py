"""What is printed from a module: code that runs, and reports."""
