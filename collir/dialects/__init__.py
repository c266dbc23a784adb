"""The dialects of collir: machine (hardware and meshes) and coll (collectives over sub-axes)."""
