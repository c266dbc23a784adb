"""The search for the cheapest placement of the axes of a mesh on the levels of its machine."""
