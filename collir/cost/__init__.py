"""Costs of programs, in closed form."""
