"""Programs run on expressions: every element of every device at once."""
