"""Measured times of collectives, as nccl-tests, OSU's benchmarks and others print them."""
