"""The best placements: on which levels of a machine the axes of a mesh should live."""
