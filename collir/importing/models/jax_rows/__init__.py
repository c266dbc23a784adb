"""Rows of JAX's operations."""
