"""Readers of measured times of collectives: nccl-tests, OSU, IMB, CSV and collir's own."""
