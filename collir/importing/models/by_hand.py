"""Compute a ``shard_map`` of JAX on whole arrays: its body, mapped over the axes of the mesh.

A device has a number on each axis, and a part of each array. All parts are one array with a leading
dimension for each axis, which lies on that axis. The body is mapped by `vmap` over these
dimensions, and so are collectives: a sum over an axis is a sum over its dimension.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Laid:
    """The layout of an array on a mesh: the axes of each dimension."""

    spec: tuple[Any, ...]
    mesh: Any


def whole_of(params: Any, avals: Sequence[Any]) -> Any:
    """Return the closed jaxpr of a ``shard_map`` on whole arrays.

    Args:
        params: those of its equation.
        avals: the types of its operands.

    Raises:
        NotImplementedError: it has a collective that `vmap` lacks.
    """
    jax: Any = importlib.import_module("jax")
    return jax.make_jaxpr(_Whole(params).call)(*avals)


class _Whole:
    """A ``shard_map``."""

    def __init__(self, params: Any):
        self.jax: Any = importlib.import_module("jax")
        self._params, self._mesh = params, params["mesh"]
        manual = params.get("manual_axes", params.get("newly_manual_axes"))
        sizes = {str(a): int(n) for a, n in dict(self._mesh.shape).items()}
        self._sizes = {a: n for a, n in sizes.items() if manual is None or a in manual}
        self._laid, self._moved = _primitives()

    def call(self, *operands: Any) -> list[Any]:
        """Return the results for whole arrays."""
        jaxpr = self._params["jaxpr"]
        specs = [_axes(spec, x.ndim) for spec, x in
                 zip(self._params["in_specs"], operands, strict=True)]  # fmt: skip
        stacked = [self._stacked(x, spec) for x, spec in zip(operands, specs, strict=True)]
        given = [{a for axes in spec for a in axes} for spec in specs]

        def body(*parts: Any) -> list[Any]:
            return self._run(jaxpr, [self._lay(x) for x in parts])

        outs = [_axes(spec, v.aval.ndim) for spec, v in
                zip(self._params["out_specs"], jaxpr.outvars, strict=True)]  # fmt: skip
        named = [{a for axes in spec for a in axes} for spec in outs]
        try:  # along other axes, results are equal
            made = self._mapped(body, given, named)(*stacked)
        except ValueError:  # which is not known without check_vma
            made = self._mapped(body, given, [set(self._sizes)] * len(outs))(*stacked)
            made = [self._first(x, own) for x, own in zip(made, named, strict=True)]
        return [self._joined(x, spec) for x, spec in zip(made, outs, strict=True)]

    def _mapped(
        self, body: Callable[..., Any], given: Sequence[set[str]], made: Sequence[set[str]]
    ) -> Callable[..., Any]:
        """Return a function of parts as one of arrays with dimensions for axes in front."""
        for axis, size in reversed(self._sizes.items()):
            places, outs = (tuple(0 if axis in own else None for own in x) for x in (given, made))
            body = self.jax.vmap(
                body, in_axes=places, out_axes=[*outs], axis_name=axis, axis_size=size
            )
        return body

    def _first(self, x: Any, own: set[str]) -> Any:
        """Return the parts of the first devices along the axes that are not named."""
        for at, axis in reversed([*enumerate(self._sizes)]):
            if axis not in own:
                x = self.jax.lax.index_in_dim(x, 0, axis=at, keepdims=False)
        return x

    # --- arrays and parts -------------------------------------------------------------------------

    def _lay(self, x: Any, spec: Sequence[Sequence[str]] = ()) -> Any:
        own = _spec((*spec, *[()] * (x.ndim - len(spec))))
        return self._laid.bind(x, sharding=Laid(own, self._mesh))

    def _stacked(self, x: Any, spec: Sequence[Sequence[str]]) -> Any:
        """Return the parts of an array, with a dimension in front for each axis of these."""
        x = self._lay(x, spec)
        sizes, front, back = list[int](), dict[str, int](), list[int]()
        for size, axes in zip(x.shape, spec, strict=True):
            for axis in axes:
                front[axis] = len(sizes)
                sizes.append(self._sizes[axis])
            back.append(len(sizes))
            sizes.append(size // math.prod(self._sizes[axis] for axis in axes))
        order = [front[axis] for axis in self._sizes if axis in front]
        return x.reshape(sizes).transpose([*order, *back])

    def _joined(self, x: Any, spec: Sequence[Sequence[str]]) -> Any:
        """Return an array of its parts."""
        own = {axis for axes in spec for axis in axes}
        front = {axis: n for n, axis in enumerate(a for a in self._sizes if a in own)}
        order = list[int]()
        for dim, axes in enumerate(spec):
            order += [*(front[axis] for axis in axes), len(front) + dim]
        sizes = [size * math.prod(self._sizes[axis] for axis in axes)
                 for size, axes in zip(x.shape[len(front) :], spec, strict=True)]  # fmt: skip
        return self._lay(x.transpose(order).reshape(sizes), spec)

    # --- the body ---------------------------------------------------------------------------------

    def _run(self, jaxpr: Any, operands: Sequence[Any], consts: Sequence[Any] = ()) -> list[Any]:
        """Return the results of a jaxpr for the parts of one device."""
        core: Any = importlib.import_module("jax.extend.core")
        util: Any = importlib.import_module("jax._src.source_info_util")
        if hasattr(jaxpr, "consts"):
            jaxpr, consts = jaxpr.jaxpr, jaxpr.consts
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))

        def value(x: Any) -> Any:
            return x.val if isinstance(x, core.Literal) else values[x]

        for eqn in jaxpr.eqns:
            info = eqn.source_info
            with util.user_context(info.traceback, name_stack=info.name_stack):
                made = self._step(eqn, [value(x) for x in eqn.invars])
            values.update(zip(eqn.outvars, made, strict=True))
        return [value(x) for x in jaxpr.outvars]

    def _step(self, eqn: Any, operands: list[Any]) -> list[Any]:
        """Return the results of an equation."""
        jax, op, params = self.jax, eqn.primitive.name, eqn.params
        if (send := _SENT.get(op)) is not None:
            return [self._lay(x) if op != "axis_index" else x
                    for x in send(self, operands, params)]  # fmt: skip
        if op in ("pvary", "pcast", "pbroadcast"):
            return operands
        if op in ("jit", "pjit"):
            inner = self._inner(params["jaxpr"], params["name"])
            return jax.jit(inner)(*operands)
        if op == "scan":
            return self._scan(params, operands)
        if op == "while":
            return self._while(params, operands)
        if op == "cond":
            which, *rest = operands
            branches = [self._inner(x, "branch") for x in params["branches"]]
            return jax.lax.switch(which, branches, *rest)
        if op in ("checkpoint", "remat", "remat2"):
            return jax.checkpoint(self._inner(params["jaxpr"], "checkpoint"))(*operands)
        for name in ("call_jaxpr", "fun_jaxpr"):
            if name in params:
                return self._run(params[name], operands)
        made = eqn.primitive.bind(*operands, **params)
        return [*made] if eqn.primitive.multiple_results else [made]

    def _inner(self, jaxpr: Any, name: str) -> Callable[..., list[Any]]:
        def function(*operands: Any) -> list[Any]:
            return self._run(jaxpr, operands)

        function.__name__ = name
        return function

    def _scan(self, params: Any, operands: list[Any]) -> list[Any]:
        count, carries = params["num_consts"], params["num_carry"]
        consts, start = operands[:count], operands[count : count + carries]

        def body(carry: Any, slices: Any) -> Any:
            made = self._run(params["jaxpr"], [*consts, *carry, *slices])
            return made[:carries], made[carries:]

        last, stacks = self.jax.lax.scan(
            body, start, operands[count + carries :], length=params["length"],
            reverse=params["reverse"],
        )  # fmt: skip
        return [*last, *stacks]

    def _while(self, params: Any, operands: list[Any]) -> list[Any]:
        first, second = params["cond_nconsts"], params["body_nconsts"]
        of_test, of_body = operands[:first], operands[first : first + second]

        def goes_on(carry: Any) -> Any:
            return self._run(params["cond_jaxpr"], [*of_test, *carry])[0]

        def body(carry: Any) -> Any:
            return self._run(params["body_jaxpr"], [*of_body, *carry])

        return [*self.jax.lax.while_loop(goes_on, body, operands[first + second :])]

    # --- what it sends ----------------------------------------------------------------------------

    def gathered(self, operands: list[Any], params: Any) -> list[Any]:
        [x], dim = operands, params["all_gather_dimension"]
        names, is_tiled = _names(params), params.get("tiled", True)
        x = x if is_tiled else self.jax.numpy.expand_dims(x, dim)
        for axis in reversed(names):
            x = self.jax.lax.all_gather(x, axis, axis=dim, tiled=True)
        return [x]

    def scattered(self, operands: list[Any], params: Any) -> list[Any]:
        [x], dim = operands, params["scatter_dimension"]
        for axis in _names(params):
            x = self.jax.lax.psum_scatter(x, axis, scatter_dimension=dim, tiled=True)
        return [x if params.get("tiled", True) else x.squeeze(dim)]

    def exchanged(self, operands: list[Any], params: Any) -> list[Any]:
        [x], [axis] = operands, _names(params)
        return [self.jax.lax.all_to_all(x, axis, params["split_axis"], params["concat_axis"],
                                         tiled=params.get("tiled", True))]  # fmt: skip

    def permuted(self, operands: list[Any], params: Any) -> list[Any]:
        [axis] = _names(params)
        pairs = tuple((int(a), int(b)) for a, b in params["perm"])
        return [self._moved.bind(self._lay(x), axis=axis, pairs=pairs) for x in operands]

    def numbered(self, operands: list[Any], params: Any) -> list[Any]:
        made: Any = 0
        for axis in _names(params):
            made = made * self._sizes[axis] + self.jax.lax.axis_index(axis)
        return [made]


_Send = Callable[[_Whole, list[Any], Any], list[Any]]


def _reduction(name: str) -> _Send:
    def send(own: _Whole, operands: list[Any], params: Any) -> list[Any]:
        function = getattr(own.jax.lax, name)
        return [function(x, tuple(params["axes"])) for x in operands]

    return send


_SENT: dict[str, _Send] = {
    "psum": _reduction("psum"), "psum_invariant": _reduction("psum"), "psum2": _reduction("psum"),
    "pmax": _reduction("pmax"), "pmin": _reduction("pmin"), "all_gather": _Whole.gathered,
    "all_gather_invariant": _Whole.gathered, "reduce_scatter": _Whole.scattered,
    "all_to_all": _Whole.exchanged, "ppermute": _Whole.permuted, "axis_index": _Whole.numbered,
}  # fmt: skip
"""Each collective of JAX, and the function that does it under `vmap`."""


def _axes(spec: Any, rank: int) -> list[tuple[str, ...]]:
    """Return the axes of each dimension."""
    listed = [() if x is None else (x,) if isinstance(x, str) else tuple(x) for x in tuple(spec)]
    return [*listed, *[()] * (rank - len(listed))]


def _spec(axes: Sequence[Sequence[str]]) -> tuple[tuple[str, ...] | None, ...]:
    """Return the axes of each dimension, as what is laid has them."""
    return tuple(tuple(own) or None for own in axes)


def _names(params: Any) -> tuple[str, ...]:
    names = params["axis_name"]
    return (names,) if isinstance(names, str) else tuple(names)


def _with(spec: tuple[Any, ...], axis: Any, dim: int | None) -> tuple[Any, ...]:
    """Return the axes of dimensions with one more, which is mapped over."""
    if dim is None:
        return spec
    own = (axis.name,) if isinstance(axis.name, str) else None
    return (*spec[:dim], own, *spec[dim:])


@cache
def _primitives() -> tuple[Any, Any]:
    """Return two operations: how parts lie, and how they go from device to device."""
    core: Any = importlib.import_module("jax.extend.core")
    batching: Any = importlib.import_module("jax.interpreters.batching")
    jax: Any = importlib.import_module("jax")
    laid, moved = core.Primitive("sharding_constraint"), core.Primitive("ppermute")
    shifted = core.Primitive("shift")

    def same(x: Any, **_: Any) -> Any:
        return x

    for own in (laid, moved, shifted):
        own.def_abstract_eval(same)

    def lay(axis: Any, values: Any, dims: Any, *, sharding: Laid) -> Any:
        [x], [dim] = values, dims
        spec = _with(sharding.spec, axis, dim)
        return laid.bind(x, sharding=Laid(spec, sharding.mesh)), dim

    def move(own: Any, values: Any, dims: Any, *, axis: str, pairs: Any) -> Any:
        [x], [dim] = values, dims
        if own.name != axis:
            return moved.bind(x, axis=axis, pairs=pairs), dim
        if dim is None:  # all devices have the same
            x, dim = jax.numpy.broadcast_to(x, (own.size, *x.shape)), 0
        steps = {b - a for a, b in pairs}
        by, count = min(steps, key=abs), own.size
        spec = tuple((axis,) if n == dim else None for n in range(x.ndim))
        if len(pairs) == count and {s % count for s in steps} == {by % count}:
            made = shifted.bind(x, spec=spec, axis=axis, by=by, is_open=False) if by else x
            return made, dim
        if steps == {by} and by and len(pairs) == count - abs(by):
            return shifted.bind(x, spec=spec, axis=axis, by=by, is_open=True), dim
        sources = {b: a for a, b in pairs}
        rows = jax.numpy.moveaxis(x, dim, 0)
        empty = jax.numpy.zeros_like(rows[0])
        made = [rows[sources[n]] if n in sources else empty for n in range(count)]
        return jax.numpy.moveaxis(jax.numpy.stack(made), 0, dim), dim

    def shift(own: Any, values: Any, dims: Any, *, spec: Any, **params: Any) -> Any:
        [x], [dim] = values, dims
        return shifted.bind(x, spec=_with(spec, own, dim), **params), dim

    for own, rule in ((laid, lay), (moved, move), (shifted, shift)):
        batching.fancy_primitive_batchers[own] = rule
    return laid, moved
