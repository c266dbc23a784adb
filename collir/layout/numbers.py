"""Primes and divisors of the sizes of levels and axes."""

from functools import cache
from itertools import product
from math import prod


@cache
def factorised(number: int) -> dict[int, int]:
    """The exponents of the primes of a positive number."""
    found: dict[int, int] = {}
    prime = 2
    while prime * prime <= number:
        while number % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            number //= prime
        prime += 1
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found


@cache
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a positive number, rising."""
    powers = [[prime**e for e in range(n + 1)] for prime, n in factorised(number).items()]
    return tuple(sorted(prod(choice) for choice in product(*powers)))
