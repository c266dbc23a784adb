"""Engines, which run workers: in this process, threads, processes, executors, ranks of MPI."""
