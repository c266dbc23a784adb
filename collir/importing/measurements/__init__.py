"""Readers of measured times of collectives: nccl-tests, OSU's benchmarks, CSV and collir's own."""
