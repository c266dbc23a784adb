"""Choices of layouts in linear time."""
