"""Costs of single collectives: algorithms as rounds of messages, and the choices of libraries."""
