"""Programs of XLA: their text, their groups, what their types say, and what is written of them."""

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.harness.seeds import fresh, some

import collir
from collir.dialects.machine import mesh_of as mesh_of_function
from collir.dialects.tensor import dist_type
from collir.importing.hlo.groups import (
    Digit,
    GroupsError,
    groups_of,
    merged,
    permuted_digits,
    tiles_of,
)
from collir.importing.hlo.inference import digits_of, shardings, typed
from collir.importing.hlo.mesh import mesh_of
from collir.importing.hlo.text import read
from collir.importing.hlo.written import HloWriter
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.semantics.reference.buffers import assemble, distribute
from collir.semantics.reference.executor import execute
from collir.tools import collir as tool
from collir.tools import collrun
from collir.tools.hlo import import_hlo

FOLDER = Path(__file__).parent / "hlo"
FILES = sorted(path.name for path in FOLDER.glob("*.hlo.txt"))
AXES = {"x": 2, "y": 2, "z": 2}


# --- groups ---------------------------------------------------------------------------------------


def listed(digits: list[Digit], devices: int) -> list[list[int]]:
    """Return the groups of some digits, device by device."""
    offsets = [0]
    for digit in digits:
        offsets = [x + digit.stride * k for x in offsets for k in range(digit.size)]
    heads = [n for n in range(devices) if not any(n // d.stride % d.size for d in digits)]
    return [[head + x for x in offsets] for head in heads]


@pytest.mark.parametrize("number", range(40))
def test_groups_have_the_digits_that_they_are_made_of(number: int) -> None:
    rng = random.Random(number)
    sizes = [rng.choice([2, 3, 4]) for _ in range(rng.randint(1, 4))]
    devices = math.prod(sizes)
    strides = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    digits = [Digit(stride, size) for stride, size in zip(strides, sizes, strict=True)]
    chosen = rng.sample(digits, rng.randint(1, len(digits)))
    expected = merged(chosen)
    text = ",".join(f"{{{','.join(map(str, group))}}}" for group in listed(chosen, devices))
    assert groups_of(f"{{{text}}}", devices) == expected
    order = [*(n for n, d in enumerate(digits) if d not in chosen), *map(digits.index, chosen)]
    count = math.prod(d.size for d in chosen)
    shape, places = ",".join(map(str, sizes)), ",".join(map(str, order))
    iota = f"[{devices // count},{count}]<=[{shape}]T({places})"
    assert groups_of(iota, devices) == expected
    axes = ",".join(f"'a{n}'={size}" for n, size in enumerate(sizes))
    own = ",".join(f"'a{digits.index(d)}'" for d in chosen)
    assert groups_of(f"mesh[{axes}] {{{own}}}", devices) == expected


@pytest.mark.parametrize(
    ("text", "devices", "reason"),
    [
        ("[2,10]<=[4,5]T(1,0)", 20, "cuts 5 devices"),
        ("{{0,1},{2,4},{3,5}}", 6, "groups [0, 1] and [2, 4] are not translates"),
        ("{{0,1,2},{3,4}}", 5, "the groups have different sizes [2, 3]"),
        ("{{0,1},{1,2}}", 4, "not all of 4 devices"),
        ("{{0,3,1,2}}", 4, "no product of digits"),
        ("[4,2]<=[8]", 16, "not of 16 devices"),
        ("mesh['a'=4] {'b'}", 4, "no axis b"),
        ("mesh['a'=4] {'a'}", 8, "4 devices, not 8"),
        ("whatever", 8, "not written as"),
    ],
)
def test_groups_that_are_no_digits_say_why(text: str, devices: int, reason: str) -> None:
    with pytest.raises(GroupsError, match=re.escape(reason)):
        groups_of(text, devices)


def test_parts_of_axes_and_older_spellings_are_digits() -> None:
    assert groups_of("mesh['a'=8] {'a':(2)2}", 8) == (Digit(2, 2),)
    old = "@mesh<a=2,b=4>(devices=[2,4]<=[4,2]T(1,0)) {a,b:(1)2}"
    assert groups_of(old, 8) == (Digit(1, 2), Digit(4, 2))
    flat = "mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'a'}"
    assert groups_of(flat, 4) == (Digit(1, 2),)
    tiles = tiles_of("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", 2, 8)
    assert tiles is not None and tiles.dims == ((Digit(1, 2),), ())


def test_a_mesh_is_the_coarsest_that_explains_the_groups() -> None:
    pieces = mesh_of([Digit(1, 4), Digit(8, 2)], 16, {}, [("node", 2), ("gpu", 8)])
    assert pieces.text == "a = node:2, b = gpu:2, c = gpu:4"
    pieces = mesh_of([Digit(1, 4)], 16, {"data": 4, "model": 4}, [("node", 2), ("gpu", 8)])
    assert pieces.text == "data = node:2 * gpu:2, model = gpu:4"
    assert pieces.listed(pieces.of((Digit(4, 4),))) == "data"
    assert pieces.listed(pieces.of((Digit(4, 2),))) == "data.gpu"
    with pytest.raises(GroupsError, match="of several meshes: name the axes"):
        mesh_of([Digit(2, 3), Digit(3, 2)], 12, {}, [("gpu", 12)])


@pytest.mark.parametrize("number", some(range(60), 20))
def test_digits_that_are_exchanged_are_found(number: int) -> None:
    rng = fresh(number)
    sizes = [rng.choice([2, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
    order = rng.sample(range(len(sizes)), len(sizes))
    ids = np.arange(math.prod(sizes)).reshape(sizes).transpose(order).reshape(-1)
    pairs = [(int(source), target) for target, source in enumerate(ids)]
    rng.shuffle(pairs)
    found = permuted_digits(pairs, len(ids))
    for source, target in pairs:
        assert target == sum(source // a.stride % a.size * b.stride for a, b in found.items())
    assert not permuted_digits([(s, (t + 1) % len(ids)) for s, t in pairs], len(ids))


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_all_collectives_of_xla_are_typed(file: str) -> None:
    imported = import_hlo((FOLDER / file).read_text(encoding="utf-8"), file)
    assert imported.sent > 0
    assert imported.typed == imported.sent
    assert imported.is_typed
    [simulation] = collir.simulate(collir.parse(imported.text))
    sent = re.findall(r"= (all_\w+|reduce_scatter|shift|permute) ", imported.text)
    assert len(sent) >= imported.sent
    assert simulation.time > 0


@pytest.mark.parametrize("file", FILES)
def test_blocks_that_all_devices_have_cost_as_much(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    module, imported = read(text, file), import_hlo(text, file)
    digits = [d for found in shardings(module) for d in found]
    digits += [d for _, found in digits_of(module) for d in found]  # pyright: ignore
    pieces = mesh_of(digits, 8, {}, [("node", 1), ("gpu", 8)])
    head = "machine @cluster = @dgx_h100(nodes = 1)\nmesh @m on @cluster { " + pieces.text + " }\n"
    blocks = head + HloWriter(module, pieces, file, has_blocks=True).function()
    [whole] = collir.simulate(collir.parse(imported.text))
    [parts] = collir.simulate(collir.parse(blocks))
    assert 0.7 < parts.time / whole.time < 1.5
    sent = [sum(x.collective.size for x in s.collectives) for s in (whole, parts)]
    assert sent[0] == pytest.approx(sent[1])


@pytest.mark.parametrize("name", ["fsdp", "scan", "exchanges", "accumulation"])
def test_a_typed_program_computes_what_xla_computed(name: str) -> None:
    text = (FOLDER / f"{name}.after_spmd.hlo.txt").read_text(encoding="utf-8")
    imported = import_hlo(text, mesh={"data": 2, "model": 4} if name in ("fsdp", "scan") else None)
    assert "reinterpret" not in imported.text
    module = collir.parse(imported.text)
    [function] = functions_of(module)
    numbers = np.load(FOLDER / f"{name}.npz")
    given = {int(key[1:]): numbers[key] for key in numbers if key[0] == "x"}
    order = [int(n) for n in re.findall(r"parameter\((\d+)\), sharding", text)]
    assert sorted(order) == sorted(given)
    mesh, rng = mesh_of_function(function), np.random.default_rng(0)
    arguments = [dist_type(x) for x in function.body.block.args]
    blocks = [distribute(mesh, given[n], x, rng) for n, x in enumerate(arguments)]
    results = [dist_type(x) for x in function.get_return_op().operands]  # pyright: ignore
    for number, (found, type) in enumerate(zip(execute(module, function, blocks), results,
                                               strict=True)):  # fmt: skip
        exact = numbers[f"y{number}"]
        np.testing.assert_allclose(assemble(mesh, found, type), exact, rtol=2e-5, atol=2e-6)


GROUPS = [
    "{{0,1,2,3},{4,5,6,7}}", "{{0,4},{1,5},{2,6},{3,7}}", "{{0,1,2,3,4,5,6,7}}",
    "{{0,1},{2,3},{4,5},{6,7}}", "{{0,2},{1,3},{4,6},{5,7}}", "{{0,2,4,6},{1,3,5,7}}",
]  # fmt: skip
"""Groups of 8 devices."""

_GROUPS = r"replica_groups=(mesh.*?\{[^{}]*\}|\{\{.*?\}\}|\[[^\]]*\]<=\[[^\]]*\](T\([^)]*\))?)"


def mutants(text: str, seed: int) -> Iterator[str]:
    """Yield programs that compute something else: with another group, without an all-reduce, or
    with other places of slices."""
    rng, lines = random.Random(seed), text.split("\n")
    sums = r" all-reduce\((%[\w.\-]+)\)"
    for n, line in enumerate(lines):
        made = ""
        if found := re.search(_GROUPS, line):
            groups = rng.choice(GROUPS)
            before, after = groups_of(found[1], 8), groups_of(groups, 8)
            sizes = {math.prod(d.size for d in digits) for digits in (before, after)}
            same = set(before) == set(after) or ("all-reduce" not in line and len(sizes) > 1)
            made = "" if same else line.replace(found[0], f"replica_groups={groups}")
            if re.search(sums, line) and rng.random() < 0.5:
                made = re.sub(f"{sums}.*", r" copy(\1)", line)
        elif found := re.search(r"[su]32\[\d+\]\S* constant\(\{(0, [1-9][^}]*)\}\)", line):
            numbers = found[1].split(", ")
            made = line.replace(found[1], ", ".join([*numbers[1:], numbers[0]]))
        if made:
            yield "\n".join([*lines[:n], made, *lines[n + 1 :]])


@pytest.mark.parametrize("file", FILES)
def test_a_program_that_is_wrong_is_never_typed(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    count = 0
    for mutant in mutants(text, 1):
        count += 1
        module = read(mutant, file)
        digits = [d for found in shardings(module) for d in found]
        digits += [d for _, found in digits_of(module) for d in found]  # pyright: ignore
        pieces = mesh_of(digits, 8, AXES, [("gpu", 8)])
        found = typed(module, pieces)
        is_whole = not any(x.reason for x in found.sent.values()) and not found.by_hand
        assert found.problems or not is_whole, mutant
    assert count or file.startswith("experts")  # whose two exchanges are among all devices


def test_what_a_shard_map_does_by_hand_is_said() -> None:
    text = (FOLDER / "manual.after_spmd.hlo.txt").read_text(encoding="utf-8")
    before, sent, after = text.partition("reduce-scatter(")
    other = after.replace("{{0,1,2,3},{4,5,6,7}}", "{{0,2,4,6},{1,3,5,7}}", 1)
    imported = import_hlo(f"{before}{sent}{other}")
    assert imported.typed == imported.sent - 1
    assert "operations of a shard_map, 1 of them collectives" in imported.problems[-1]


def test_tables_that_the_text_leaves_out_are_what_fits() -> None:
    text = (FOLDER / "transformer.after_spmd.hlo.txt").read_text(encoding="utf-8")
    cut, count = re.subn(r"(u32\[8\]\S* constant\()\{.*?\}\)", r"\1{...})", text)
    imported = import_hlo(cut)
    assert count
    assert imported.typed == imported.sent
    assert any("left out of the text" in remark for remark in imported.remarks)


OLD = """HloModule m, num_partitions=4

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main (p: f32[4,8], q: f32[8,4]) -> (f32[4,4], f32[16,8]) {
  %p = f32[4,8]{1,0} parameter(0), sharding={devices=[1,4]0,1,2,3}
  %q = f32[8,4]{1,0:T(8,128)} parameter(1), sharding={devices=[4,1]<=[4]}
  %d = f32[4,4]{1,0} dot(f32[4,8]{1,0} %p, f32[8,4]{1,0} %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %s = f32[4,4]{1,0} all-reduce-start(f32[4,4]{1,0} %d), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%add
  %t = (f32[4,8]{1,0}, f32[16,8]{1,0}) all-gather-start(f32[4,8]{1,0} %p), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}
  %r = f32[4,4]{1,0} all-reduce-done(f32[4,4]{1,0} %s)
  %g = f32[16,8]{1,0} all-gather-done(%t)
  ROOT %z = (f32[4,4]{1,0}, /*index=1*/f32[16,8]{1,0}) tuple(%r, %g)
}
"""  # noqa: E501


def test_older_spellings_and_asynchronous_pairs_are_read() -> None:
    imported = import_hlo(OLD)
    assert "level gpu[4]" in imported.text
    assert (imported.sent, imported.typed) == (2, 1)
    assert "%s = all_reduce %einsum over a async" in imported.text
    assert imported.problems[0].startswith("t (line 14) is not typed: dimension 0 of its operand")
    collir.parse(imported.text)


GPU = """HloModule jit_step, is_scheduled=true, num_partitions=8

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = bf16[] add(%a, %b)
}

%scattered (p.1: bf16[64,32]) -> bf16[8,32] {
  %p.1 = bf16[64,32]{1,0} parameter(0)
  ROOT %rs = bf16[8,32]{1,0} reduce-scatter(%p.1), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true, to_apply=%add
}

ENTRY %main (p: bf16[8,32], q: bf16[32,64]) -> (bf16[8,32], bf16[8,64], bf16[8,32]) {
  %p = bf16[8,32]{1,0} parameter(0), sharding={devices=[8,1]<=[8]}
  %q = bf16[32,64]{1,0} parameter(1), sharding={replicated}
  %start = (bf16[8,32]{1,0}, bf16[64,32]{1,0}) all-gather-start(%p), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true, backend_config={"collective_backend_config":{"is_sync":false}}
  %gemm = (bf16[8,64]{1,0}, s8[4096]{0}) custom-call(%p, %q), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %product = bf16[8,64]{1,0} get-tuple-element(%gemm), index=0
  %gathered = bf16[64,32]{1,0} all-gather-done(%start)
  %permute-start = (bf16[8,32]{1,0}, bf16[8,32]{1,0}, u32[], u32[]) collective-permute-start(%p), channel_id=2, source_target_pairs={{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7},{7,0}}
  %moved = bf16[8,32]{1,0} collective-permute-done(%permute-start)
  %scatter-start = ((bf16[64,32]{1,0}), bf16[8,32]{1,0}) async-start(%gathered), calls=%scattered
  %part = bf16[8,32]{1,0} async-done(%scatter-start), calls=%scattered
  ROOT %out = (bf16[8,32]{1,0}, bf16[8,64]{1,0}, bf16[8,32]{1,0}) tuple(%part, %product, %moved)
}
"""  # noqa: E501


def test_programs_for_gpus_have_asynchronous_collectives_and_calls_of_libraries() -> None:
    imported = import_hlo(GPU)
    assert imported.sent == 3
    assert "all_gather %p over a dim 0 async" in imported.text
    assert f"flops {2 * 8 * 64 * 32}" in imported.text
    assert "= shift %" in imported.text
    # The sum of what is whole would be 8 times as large.
    assert [x for x in imported.problems if x.startswith("rs (line 11) is not typed")]
    [simulation] = collir.simulate(collir.parse(imported.text))
    assert simulation.time > 0


def test_programs_of_replicas_have_costs() -> None:
    text = GPU.replace("num_partitions=8", "replica_count=8").replace("channel_id=1, ", "")
    imported = import_hlo(text.replace(", sharding={replicated}", ""))
    assert imported.sent == 3
    collir.parse(imported.text)


# --- texts that are no programs -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x:1:1: error: the file is empty"),
        ("module @m {}", "x:1:1: error: this is no HLO of XLA"),
        ("HloModule m, num_partitions=8\n\nENTRY %e (p: f32[8]) -> f32[8] {\n",
         "x:3:1: error: the file ends within computation e"),
        ("HloModule m\nENTRY %e () -> f32[] {\n  what is this\n}\n", "x:3:1: error: this is no"),
        ("HloModule m\nENTRY %e () -> f32[] {\n  %a = q7[8] add(%b)\n}\n", "x:3:8: error: this is"),
        ("HloModule m\nENTRY %e () -> f32[] {\n  %a = f32[] add(%b, %c)\n}\n",
         "x:3:1: error: a takes b, which is not above it"),
        ("HloModule m\nENTRY %e () -> f32[] {\n  %a = f32[] call(), to_apply=%e\n}\n",
         "x:2:1: error: computation e runs itself"),
        ("HloModule m\nENTRY %e () -> f32[] {\n  %a = f32[] fusion(), calls=%f\n}\n",
         "x:3:1: error: there is no computation f"),
        ("HloModule m\nENTRY %e () -> f32[] {\n  %a = f32[] constant(1)\n}\n",
         "x:1:1: error: the program is for one device"),
        ("HloModule m, num_partitions=12\nENTRY %e () -> f32[] {\n  %a = f32[] constant(1)\n}\n",
         "x:2:1: error: the program is for 12 devices"),
        ("HloModule m\nENTRY %e () -> " + "(" * 5000 + "\n", "the module has no ENTRY"),
        ("HloModule m\nENTRY %e () -> f32[] {\n  %a = " + "(" * 50000 + "\n}\n",
         "x:3:50007: error: the line ends within a shape"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_program_is_one_error(text: str, message: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        import_hlo(text, "x")
    assert message in str(caught.value)


@pytest.mark.parametrize("number", range(20))
def test_a_part_of_a_program_is_an_error_or_a_program(number: int) -> None:
    rng = random.Random(number)
    text = (FOLDER / rng.choice(FILES)).read_text(encoding="utf-8")
    for _ in range(6):
        at = rng.randrange(len(text))
        kind = rng.choice(["cut", "drop", "twice", "swap"])
        end = min(len(text), at + rng.randint(1, 40))
        changed = {
            "cut": text[:at],
            "drop": text[:at] + text[end:],
            "twice": text[:end] + text[at:],
            "swap": text[:at] + rng.choice("(){}[]=,%0x ") + text[at + 1 :],
        }[kind]
        try:
            collir.parse(import_hlo(changed, "x").text)
        except DiagnosticError:
            continue


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_a_program_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "fsdp.coll"
    file = FOLDER / "fsdp.after_spmd.hlo.txt"
    words = ["import", "hlo", str(file), "--mesh", "data=2,fsdp=4", "-o", str(out)]
    assert tool.main(words) == 0
    assert "7 of 7 collectives are typed" in capsys.readouterr().err
    imported = import_hlo(file.read_text(encoding="utf-8"), str(file))
    lines = {line.rpartition(":")[0] for line in imported.sources.values()}
    assert lines == {"xla_programs.py"}
    assert "%ws_0: f32[32@fsdp, 32]" in out.read_text(encoding="utf-8")
    assert collrun.main([str(out)]) == 0
    assert "ok up to rounding on 8 devices" in capsys.readouterr().out
    assert tool.main([*words, "--force", "--machine", "@dgx_h100(nodes = 2)"]) == 1
    assert "the levels have 16 devices, and the program 8" in capsys.readouterr().err
    assert tool.main(["import", "hlo", str(file), "--mesh", "data=2,fsdp=two"]) == 2


def test_what_is_not_typed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (FOLDER / "fsdp.after_spmd.hlo.txt").read_text(encoding="utf-8")
    wrong = re.sub(r" all-reduce\((%reduce)\).*", r" copy(\1)", text, count=1)
    path = tmp_path / "wrong.txt"
    path.write_text(wrong, encoding="utf-8")
    assert tool.main(["import", "hlo", str(path), "-o", str(tmp_path / "x.coll")]) == 0
    assert "warning: result 0 is partial over a, b" in capsys.readouterr().err
