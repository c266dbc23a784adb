"""Costs of whole functions: their steps in sequence, or simulated as they overlap."""
