"""The equation of an einsum with a letter for every index, as libraries of arrays take it."""

import string


def subscripts(equation: str) -> str:
    """Return ``bsh,hf->bsf`` for ``b s h, h f -> b s f``.

    An index gets a letter of its name, the first that no index before it has.
    """
    left, right = equation.split("->")
    terms = [part.split() for part in (*left.split(","), right)]
    letters: dict[str, str] = {}
    for index in (index for term in terms for index in term):
        free = (c for c in index + string.ascii_letters if c in string.ascii_letters)
        letters.setdefault(index, next(c for c in free if c not in letters.values()))
    *inputs, out = ("".join(letters[index] for index in term) for term in terms)
    return f"{','.join(inputs)}->{out}"
