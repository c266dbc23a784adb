"""Comparison of two functions: by proof, or by running both on the same inputs."""
