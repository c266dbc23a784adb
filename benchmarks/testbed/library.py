"""MPICH's settings in the measurements, and the cost model's names of the same algorithms."""

from dataclasses import replace

from collir.cost.collectives.collective import Collective

NETWORK = {
    # Only TCP over the shaped links, because MPICH would find shared memory across name spaces.
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "MPIR_CVAR_NOLOCAL": "1",
    # A waiting rank sleeps soon (with patient_yield.c).
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
}
"""Settings of every launch."""

_CHOSEN = {
    "all_reduce": ("ALLREDUCE", "reduce_scatter_allgather", "halving_doubling"),
    "reduce_scatter": ("REDUCE_SCATTER_BLOCK", "recursive_halving", "recursive_halving"),
    "all_gather": ("ALLGATHER", "recursive_doubling", "recursive_doubling"),
    "broadcast": ("BCAST", "binomial", "binomial"),
    "reduce": ("REDUCE", "reduce_scatter_gather", "halving_doubling"),
    "scatter": ("SCATTER", "binomial", "binomial"),
    "gather": ("GATHER", "binomial", "binomial"),
}
"""Collective -> MPICH's name in its settings, the algorithm there, and in the cost model."""

_RENDEZVOUS = {
    # Long messages wait for their receiver, as on networks with remote memory access. If messages
    # of the next round were sent early, they would queue before messages of this round.
    "MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD": "8192",
    "MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL": "direct",
}

_NO_OTHERS = {"MPIR_CVAR_DEVICE_COLLECTIVES": "none", "MPIR_CVAR_COLLECTIVE_FALLBACK": "error"}

_FIXED = (
    _NO_OTHERS
    | {f"MPIR_CVAR_{name}_INTRA_ALGORITHM": chosen for name, chosen, _ in _CHOSEN.values()}
    | {
        f"MPIR_CVAR_I{name}_INTRA_ALGORITHM": f"sched_{chosen}"
        for name, chosen, _ in _CHOSEN.values()
    }
)
"""Settings of the algorithms, the same for blocking and for non-blocking collectives."""

PROTOCOLS = ("eager", "rendezvous")
"""Names of the settings for programs: messages are sent at once, or wait for their receiver."""

SETTINGS: dict[str, dict[str, str]] = {
    "eager": _FIXED,
    "rendezvous": _FIXED | _RENDEZVOUS,
    "ring": _NO_OTHERS | {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"},
    "default": {},
}
"""Settings by name: two for programs, one for an all_reduce by a ring, and MPICH's own choice."""


def modelled(collective: Collective) -> Collective:
    """Return a collective with the algorithm that is set under ``PROTOCOLS``."""
    return replace(collective, algorithm=_CHOSEN[collective.kind][2])


def chosen_algorithms() -> dict[str, str]:
    """Return the cost model's name for the algorithm of every collective under ``PROTOCOLS``."""
    return {kind: name for kind, (_, _, name) in _CHOSEN.items()}
