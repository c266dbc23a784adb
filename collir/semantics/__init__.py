"""What programs mean, written independently of the typing rules.

``chunks`` is the boolean chunk semantics of P²; ``collectives`` and ``executor`` run a program on
every device of a mesh with real data. They use the values of ``collir.layout`` (meshes, types),
never its rules, so that each can find the other wrong.
"""
