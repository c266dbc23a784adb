"""A report of a program as one page of HTML, which needs nothing from elsewhere."""
