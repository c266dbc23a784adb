"""Primes and divisors of the sizes of levels and axes."""

from itertools import product
from math import prod


def factorised(number: int) -> dict[int, int]:
    """Return the prime factors of a positive number, with their exponents."""
    exponents: dict[int, int] = {}
    prime = 2
    while prime * prime <= number:
        while number % prime == 0:
            exponents[prime] = exponents.get(prime, 0) + 1
            number //= prime
        prime += 1
    if number > 1:
        exponents[number] = exponents.get(number, 0) + 1
    return exponents


def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors of a positive number in increasing order."""
    powers = [[prime**e for e in range(n + 1)] for prime, n in factorised(number).items()]
    return tuple(sorted(prod(choice) for choice in product(*powers)))
