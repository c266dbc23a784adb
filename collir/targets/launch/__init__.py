"""Targets that start a job on the devices of a placement: lists of hosts, meshes of frameworks."""
