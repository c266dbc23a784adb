"""Costs of single collectives: algorithms as rounds of messages, and what libraries choose."""
