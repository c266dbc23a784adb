"""Meshes, layouts and the typing rules between layouts, as plain frozen values.

A value is distributed over the sub-axes of a mesh; on each sub-axis it is replicated, sharded,
partial or held at one coordinate. The rules in ``rules`` give the layout to which a collective
leads from each layout: they are the result-type inference and the verifier of the dialect.
"""

from collir.layout.dtypes import DType, Reduction
from collir.layout.errors import LayoutError
from collir.layout.mesh import Axis, Factor, Mesh, MeshError, SubAxis, unplaced_message
from collir.layout.types import Dim, DistType, Place, apart, at_root, check_type, place_at

__all__ = [
    "Axis",
    "DType",
    "Dim",
    "DistType",
    "Factor",
    "LayoutError",
    "Mesh",
    "MeshError",
    "Place",
    "Reduction",
    "SubAxis",
    "apart",
    "at_root",
    "check_type",
    "place_at",
    "unplaced_message",
]
