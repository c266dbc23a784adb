"""Layouts by the amounts of data alone."""
