"""A second opinion: the language, written again from docs/language/ alone.

``text`` reads programs, ``mesh`` and ``rules`` type their steps, ``numerics`` and ``values`` run
them on numpy arrays. None of these imports collir, so that what they agree on with collir is what
the documentation says. ``campaign`` compares the two.
"""
