"""Costs of whole functions: their steps one after the other, or simulated as they overlap."""
