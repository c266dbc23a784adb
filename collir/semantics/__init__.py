"""The meaning of programs, written independently of the typing rules.

``reference`` runs a program on every device of a mesh with real data, and has the boolean chunk
semantics of P². ``symbolic`` runs a program on expressions, for all devices at once.
``validation`` compares two programs. All of them use the values of ``collir.layout`` (meshes,
types), never its rules, so that an error in either of them shows as a disagreement.
"""
