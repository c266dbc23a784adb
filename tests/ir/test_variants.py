"""Variants of a training step compute the same, and print as programs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.ir.roles import Role, argument_roles
from collir.ir.variants import recompute_layers, shard_roles
from collir.tools.collrun import main as collrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "sweep.coll"
SIZES = {"batch": 4, "seq": 4, "hidden": 8, "heads": 4, "layers": 2, "vocab": 8}


def _module() -> ModuleOp:
    return collir.instantiate(collir.parse(EXAMPLE), "", **SIZES)


def _sharded(*roles: Role) -> Callable[[ModuleOp], None]:
    def change(module: ModuleOp) -> None:
        [step] = [f for f in functions_of(module) if f.sym_name.data == "step"]
        shard_roles(step, ["data"], roles)
        for argument, role in zip(step.args, argument_roles(step), strict=True):
            x = dist_type(argument)
            if role in roles and len(x.dims) > 1:
                assert "data" in {axis.partition(".")[0] for axis in x.axes}

    return change


@pytest.mark.turns
@pytest.mark.parametrize(
    "change",
    [recompute_layers, _sharded(Role.STATE), _sharded(Role.STATE, Role.PARAMETER)],
    ids=["recompute", "ZeRO-1", "ZeRO-3"],
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
