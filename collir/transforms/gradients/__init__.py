"""Gradients of functions, by reverse-mode differentiation."""
