"""Variants of a training step compute the same, and print as programs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import collir
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.ir.roles import Role, argument_roles
from collir.tools.collrun import main as collrun
from collir.transforms.variants import recompute_layers, shard_masters, shard_roles

EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "sweep.coll"
SIZES = {"batch": 4, "seq": 4, "hidden": 8, "heads": 4, "layers": 2, "vocab": 8}


def _module() -> ModuleOp:
    return collir.instantiate(collir.parse(EXAMPLE), "", **SIZES)


def _axes(value: SSAValue) -> set[str]:
    return {axis.partition(".")[0] for axis in dist_type(value).axes}


def _sharded(*roles: Role) -> Callable[[ModuleOp], None]:
    def change(module: ModuleOp) -> None:
        [step] = [f for f in functions_of(module) if f.sym_name.data == "step"]
        shard_roles(step, ["data"], roles)
        for argument, role in zip(step.args, argument_roles(step), strict=True):
            if role in roles and len(dist_type(argument).dims) > 1:
                assert "data" in _axes(argument)

    return change


def _divided_masters(module: ModuleOp) -> None:
    """Divide what an optimiser keeps, the exact weights too; layers have whole narrow ones."""
    [step] = [f for f in functions_of(module) if f.sym_name.data == "step"]
    shard_roles(step, ["data"], [Role.STATE])
    shard_masters(step, ["data"])
    roles = zip(step.args, argument_roles(step), strict=True)
    assert all("data" in _axes(x) for x, role in roles if role is Role.PARAMETER)


@pytest.mark.turns
@pytest.mark.parametrize(
    "change",
    [
        recompute_layers,
        _sharded(Role.STATE),
        _divided_masters,
        _sharded(Role.STATE, Role.PARAMETER),
    ],
    ids=["recompute", "states", "ZeRO-1", "ZeRO-3"],
)
def test_a_variant_computes_the_same(change: Callable[[ModuleOp], None], tmp_path: Path) -> None:
    """collrun compares the program on eight devices with one device."""
    module = _module()
    before = collir.emit(module)
    change(module)
    text = collir.emit(module)
    assert text != before
    path = tmp_path / "variant.coll"
    path.write_text(text, encoding="utf-8")
    assert collir.emit(collir.parse(path)) == text
    assert collrun([str(path), "--function", "step"]) == 0
