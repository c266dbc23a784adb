"""Traces of programs that ran: kernels and collectives of each rank, with their times."""
