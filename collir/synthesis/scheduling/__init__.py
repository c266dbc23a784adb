"""Schedules: the order of steps and the packing of collectives that overlap computation best."""
