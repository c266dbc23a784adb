"""Right plans of MSCCL++ are proven, and faults are found, by a plain interpreter's word."""

import json
import random
from collections import Counter
from functools import cache
from typing import Any

import pytest
from support.algorithms.chunk_programs import PROGRAMS
from support.algorithms.execution_plans import (
    MADE,
    PlanMaker,
    all_pairs,
    groups,
    packets,
    pipelined,
    switched,
)
from support.algorithms.plan_faults import plan_with_fault
from support.algorithms.plan_interpreter import Interpreter, wanted
from support.algorithms.shipped_plans import (
    multi_node_transfer,
    multi_node_transfer_pkt,
    reduce_nvls_pipeline,
    reduce_pack,
    reduce_tbg,
    transfer_pack,
)

from collir.algorithms.checking import CheckedAlgorithm
from collir.algorithms.chunks import program_of
from collir.algorithms.fusion import fused_program
from collir.algorithms.mscclpp.checking import check_plan
from collir.algorithms.mscclpp.text import text_of_plan
from collir.algorithms.mscclpp.writing import plan_of
from collir.algorithms.table import ALGORITHMS
from collir.importing.algorithms.mscclpp import read_mscclpp
from collir.importing.values import ReadError

Json = dict[str, Any]


def checked(plan: Json) -> CheckedAlgorithm:
    return check_plan(read_mscclpp(json.dumps(plan).encode()).plan)


def launches(plan: Json) -> int:
    return 3 if plan["use_double_scratch_buffer"] else 2


def goes_wrong(plan: Json, seeds: range) -> bool:
    """Return whether some order of threads gives other results, or does not end."""
    count = launches(plan)
    right = wanted(plan, count)
    return any(Interpreter(plan, seed, count).run() != right for seed in seeds)


@cache
def written(collective: str, name: str, ranks: int, kind: str) -> str:
    program = program_of(ALGORITHMS[collective, name], ranks)
    return text_of_plan(plan_of(program if ranks == 3 else fused_program(program), kind))


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_plans_by_hand_are_proven_and_compute_the_collective(make: Any, ranks: int) -> None:
    plan = make(ranks)
    assert checked(plan).problems == []
    assert not goes_wrong(plan, range(4))


@pytest.mark.parametrize("key", sorted(ALGORITHMS), ids="-".join)
def test_algorithms_are_written_read_proven_and_run(key: tuple[str, str]) -> None:
    for ranks in filter(ALGORITHMS[key].fits, range(2, 10)):
        for kind in ("memory", "port") if ranks == 3 else ("memory",):
            text = written(*key, ranks, kind)
            assert check_plan(read_mscclpp(text.encode()).plan).problems == []
            assert not goes_wrong(json.loads(text), range(ranks, ranks + 1))


@pytest.mark.parametrize("number_of_faults", [250, pytest.param(2000, marks=pytest.mark.slow)])
def test_all_injected_faults_are_found(number_of_faults: int) -> None:
    plans = [make(ranks) for make in MADE for ranks in (2, 3)]
    plans += [
        json.loads(written(*key, ranks, ("memory", "port")[number % 2]))
        for number, key in enumerate(sorted(ALGORITHMS))
        for ranks in (2, 3) if ALGORITHMS[key].fits(ranks)
    ]  # fmt: skip
    rng, count = random.Random(5), Counter[str]()
    for number in range(number_of_faults):
        plan, what = plan_with_fault(plans[number % len(plans)], rng)
        try:
            found = checked(plan)
        except ReadError:
            count["form"] += 1
            continue
        if {"form"} == set(found.counts) and found.messages == 0:
            count["form"] += 1  # it was not run at all
            continue
        wrong = goes_wrong(plan, range(number, number + 2))
        count["wrong" if wrong else "not shown to be wrong"] += 1
        assert not (wrong and found.is_right), what
        count["refused"] += not found.is_right
    wrong = count["wrong"]
    assert wrong > number_of_faults / 2 and count["refused"] < 1.6 * wrong, count


@pytest.mark.parametrize("ranks", [2, 3])
def test_unequal_parts_of_groups_are_run(ranks: int) -> None:
    plan = groups(ranks)
    assert problems(plan) == []
    assert all(Interpreter(plan, seed, 2, 3).run() == wanted(plan, 2, 3) for seed in range(9))


def test_parts_that_fit_each_other_only_if_they_are_equal_are_told() -> None:
    # A block copies a quarter of two chunks, and sends a half of one: the same, if all are equal.
    made = PlanMaker("quarters", "allgather", (2, 4, 2), 2)
    for rank in range(2):
        for part in range(4):
            block = made.block(rank)
            if part == 0:
                _ = block.meet()
            _ = block.barrier(0, 4)
            block.group = {"tbg_info": {"tb_id": part, "tbg_size": 4}}
            _ = block.move("copy", [("o", 2 * rank)], [("s", 0)], 2).nop()
            block.group = {"tbg_info": {"tb_id": part % 2, "tbg_size": 2}}
            own = part // 2
            _ = block.move("put", [("s", own)], [(1 - rank, "o", 2 * rank + own)])
            block.group = {}
            _ = block.barrier(0, 4)
            if part == 0:
                _ = block.meet()
    plan = made.made()
    assert all(Interpreter(plan, seed, 2, 4).run() == wanted(plan, 2, 4) for seed in range(9))
    assert problems(plan)[0] == (
        "rank 1, block 2, operation 3 (put) reads scratch[1] (part 0 of 5) of rank 1, which rank "
        "1, block 1, operation 1 (copy) writes; neither waits for the other"
    )
    assert any(Interpreter(plan, seed, 2, 5).run() != wanted(plan, 2, 5) for seed in range(40))


@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.parametrize("kind", ["memory", "port"])
def test_programs_with_all_kinds_of_steps_are_written(make: Any, kind: str) -> None:
    for ranks in (2, 3, 5):
        text = text_of_plan(plan_of(make(ranks), kind))
        assert check_plan(read_mscclpp(text.encode()).plan).problems == []
        assert not goes_wrong(json.loads(text), range(3))


@pytest.mark.parametrize(
    "plan", [transfer_pack(1), transfer_pack(2), reduce_pack(), multi_node_transfer()],
    ids=["transfer_pack", "transfer_pack_tbg", "reduce_pack", "multi_node_transfer"],
)  # fmt: skip
def test_plans_that_mscclpp_ships_are_proven(plan: Json) -> None:
    assert checked(plan).problems == []
    assert not goes_wrong(plan, range(20))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (multi_node_transfer_pkt(),
         "rank 0, block 0, operation 1 (ppkt) reads scratch[0] of rank 0, which rank 0, block 0, "
         "operation 0 (cpkt) writes; its threads need a nop between"),
        (reduce_nvls_pipeline(),
         "rank 1, block 0, operation 5 (glres, iteration 0) writes input[1] of rank 0, and rank 0 "
         "does not wait for that before it ends"),
        (reduce_tbg(),
         "rank 0, block 0, operation 7 (get) reads scratch[1] (part 0 of 2) of rank 1, which rank "
         "1, block 1, operation 0 (copy) writes; neither waits for the other"),
    ],
    ids=["multi_node_transfer_pkt", "reduce_nvls_pipeline", "reduce_tbg"],
)  # fmt: skip
def test_races_in_plans_that_mscclpp_ships_go_wrong_in_some_order(plan: Json, message: str) -> None:
    assert problems(plan)[0] == message
    assert goes_wrong(plan, range(40))


# --- what is wrong, in words ---------------------------------------------------------------------


def problems(plan: Json) -> list[str]:
    return [x.message for x in checked(plan).problems]


def ops(plan: Json, rank: int = 0, block: int = 0) -> list[Json]:
    return plan["gpus"][rank]["threadblocks"][block]["ops"]


def test_who_does_not_wait_for_the_launch_of_others_is_told() -> None:
    plan = all_pairs(2)
    del ops(plan)[2]  # the wait; the signals are one too many then
    assert problems(plan)[0] == (
        "rank 0, block 0, operation 3 (rres) reads input[0] of rank 1, and has not waited for the "
        "launch of that rank"
    )


def test_a_rank_that_ends_before_its_output_has_come_is_told() -> None:
    plan = all_pairs(2)
    for rank in range(2):
        ops(plan, rank)[-2:] = [{"name": "nop"}]
    assert problems(plan)[0] == (
        "rank 1, block 0, operation 4 (rres) writes input[1] of rank 0, and rank 0 does not wait "
        "for that before it ends"
    )


def test_threads_that_do_not_meet_are_a_race() -> None:
    made = PlanMaker("", "allreduce", (1, 1, 1), 2)
    for rank in range(2):
        block = made.block(rank).meet().move("copy", [("i", 0)], [("s", 0)])
        _ = block.move("re", [("i", 0), ("s", 0)], [("i", 0)])
    assert problems(made.made())[0] == (
        "rank 1, block 0, operation 5 (re) reads scratch[0] of rank 1, which rank 1, block 0, "
        "operation 4 (copy) writes; its threads need a nop between"
    )


def test_relaxed_signals_order_no_data() -> None:
    plan = switched(2)
    for rank in range(2):
        for op in ops(plan, rank):
            op["name"] = {"signal": "rlxsignal", "wait": "rlxwait"}.get(op["name"], op["name"])
    found = problems(plan)
    # That all have been launched, they do tell; not that the sums have come.
    assert len(found) == 2 and all("glres) writes" in x for x in found)


def test_one_scratch_buffer_for_packets_of_all_launches_is_a_race() -> None:
    plan = packets(2) | {"use_double_scratch_buffer": False}
    assert problems(plan)[0] == (
        "rank 0, block 0, operation 0 (ppkt) writes scratch[0] of rank 1, which rank 1, block 1, "
        "operation 0 (respkt) reads; neither waits for the other (launch 2)"
    )


def test_blocks_that_wait_for_each_other_are_a_deadlock() -> None:
    plan = all_pairs(3)
    for rank in range(3):
        own = ops(plan, rank)
        own[1], own[2] = own[2], own[1]
    assert problems(plan)[0] == (
        "rank 0, block 0, operation 1 (wait) waits for ever: no signal comes from rank 1 on its "
        "memory channel 0"
    )


def test_semaphores_have_to_end_as_they_begin() -> None:
    plan = pipelined(2)
    plan["gpus"][1]["semaphores"][0]["init_value"] = 1
    assert "race" in checked(plan).counts
    plan = pipelined(2)
    ops(plan, 1, 0)[0]["ops"].pop()
    assert problems(plan)[0] == (
        "rank 1, block 1, operation 0 (sem_acquire, iteration 0) waits for ever: semaphore 0 is "
        "not released"
    )


def test_what_an_earlier_launch_has_left_is_told() -> None:
    plan = packets(2)
    plan["gpus"][0]["threadblocks"][0]["ops"] = []
    assert problems(plan)[0].endswith("waits for ever: no packet comes to scratch[0] of rank 1")


def test_limits_of_the_executor_are_kept() -> None:
    found = problems(all_pairs(12))
    assert found[:2] == [
        "rank 0, block 0, operation 1 (signal) has 11 channels: an operation has 8 at most",
        "rank 0, block 0, operation 2 (wait) has 11 channels: an operation has 8 at most",
    ]
    assert any("has 12 sources: an operation has 10 at most" in x for x in found)
    plan = all_pairs(2)
    ops(plan)[:0] = [{"name": "nop"}] * 60
    assert problems(plan) == ["rank 0, block 0 has 69 operations: a thread block has 64 at most"]


def test_parts_of_groups_without_a_common_measure_are_not_guessed() -> None:
    plan = groups(2)
    for rank in range(2):
        for block in range(2):
            for op in ops(plan, rank, block):
                if "tbg_info" in op:
                    op["tbg_info"] = {"tb_id": block, "tbg_size": 101}
    assert problems(plan) == [
        "this is not checked: groups of thread blocks divide a chunk into 101 parts"
    ]


def test_pipelines_that_the_kernel_runs_beyond_their_end_are_told() -> None:
    plan = pipelined(2)
    ops(plan)[0]["iter_context"]["num_chunks"] = 2
    assert "runs over 2 chunks and uses input[0] of rank 0" in problems(plan)[0]


@pytest.mark.parametrize("chunks", [2**20])
def test_sizes_beyond_all_bounds_are_not_run(chunks: int) -> None:
    plan = all_pairs(4)
    for gpu in plan["gpus"]:
        gpu["scratch_chunks"] = chunks
    for gpu in plan["gpus"]:
        for block in gpu["threadblocks"]:
            block["ops"] += [{
                "name": "copy", "src_buff": [{"type": "s", "index": 0, "size": chunks}],
                "dst_buff": [{"type": "s", "index": 0, "size": chunks}],
            }] * 9  # fmt: skip
    assert "use more than 2,000,000 parts of chunks" in problems(plan)[0]
