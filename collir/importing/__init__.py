"""Machines and measurements in the formats of other tools, read into collir's own values."""
