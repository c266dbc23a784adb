"""Searches for programs, placements, schedules and orders of least cost."""
