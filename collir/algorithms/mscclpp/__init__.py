"""Execution plans of MSCCL++: one-sided operations between the memories of ranks."""
