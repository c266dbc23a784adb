"""Predictions beside measured collectives and published steps: what is read, what is predicted, and
what reports say of it."""

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import collir
from collir.cost.programs.accuracy import STEP, accuracy_lines
from collir.tools.machine import preset

FOLDER = Path(__file__).parents[2] / "benchmarks"

COLLECTIVES = "machine,gpus_per_node,nodes,network,library,collective,bytes,time_us,source\n"
SENT = (
    "h200,4,1,,nccl,all_reduce,1073741824,6000,a\n"
    "h100,8,2,8x200Gb TCPXO (A3 Mega),nccl,all_gather,1073741824,5531,b\n"
    "b200,1,2,1x400Gb RoCE (GCP A4),nccl,all_gather,1048576,46,b\n"
    "cpu,4,2,1x100Gb,mpi,alltoall,1048576,60,c\n"
)

STEPS = (
    "model,layers,hidden,ffn,heads,kv_heads,vocab,experts,topk,seq,gpus,machine,global_batch,"
    "micro_batch,tp,pp,vp,cp,ep,dp_or_fsdp,sequence_parallel,recompute,precision,framework,"
    "tokens_per_s_per_gpu,tflops_per_gpu,iteration_s,peak_memory_GB,source,note\n"
)
GPT = (
    "gpt,2,256,1024,4,4,512,,,128,16,h100,16,1,2,1,,1,,DP + zero-1,yes,none,bf16,{},,,0.01,,s,{}\n"
)
LLAMA = "llama,4,256,768,4,2,512,,,128,16,h100,32,1,2,2,,2,,zero-3,,full,bf16,NeMo,,,0.02,,s,\n"


@pytest.fixture(scope="module", autouse=True)
def _folder() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """The modules of the benchmarks can be imported."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


def part(name: str) -> Any:
    """Return a module of the benchmarks."""
    return importlib.import_module(name)


def published() -> Any:
    """Return the module of published steps."""
    return part("measured.published_steps")


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_collective_is_predicted_on_the_machine_of_its_row(tmp_path: Path) -> None:
    collectives = part("measured.collectives")
    rows = collectives.read(table(tmp_path, COLLECTIVES + SENT))
    own, mega, single, cpus = map(collectives.machine_of, rows)
    assert [level.size for level in own.levels] == [1, 4]
    assert [(x.size, x.rails) for x in mega.levels] == [(2, 8), (8, 1)]
    assert mega.levels[0] == preset("gcp_a3_mega").op.value().levels[0]
    assert [(x.size, x.rails) for x in single.levels] == [(2, 1), (1, 1)]
    assert single.levels[0].port == pytest.approx(366e9 / 8)  # as of the cloud's adapters
    assert [x.size for x in cpus.levels] == [2, 1, 4]
    assert cpus.levels[0].port == 12.5e9


PRODUCTS = "gpu,M,N,K,dtype,tflops,time_us,library,source,note\n" + (
    "h100,4096,4096,4096,bf16,700,,cuBLAS (12),s,\n"
    "mi355x,16,4096,4096,bf16,100,,aiter,s,\n"
    "h100,4096,4096,4096,fp8,1200,,cuBLAS (12),s,\n"
    "h800,4096,4096,4096,bf16,600,,cuBLAS (12),s,\n"
)
ATTENTIONS = "gpu,version,pass,head_dim,seq,causal,batch,heads,dtype,tflops,source,note\n" + (
    "h100,FA3,fwd,128,4096,0,4,16,fp16,600,s,\n"
    "h100,FA3,bwd,128,4096,1,4,16,bf16,500,s,\n"
    "h100,FA3,fwd,64,4096,0,4,16,fp16,400,s,\n"
    "gb200,cuDNN,fwd,64,4096,1,4,16,bf16,400,s,sliding window 128 (tflops of the source)\n"
    "h100,FA3,fwd,64,4096,,4,16,fp16,400,s,\n"
)


def test_kernels_are_predicted_on_the_devices_of_their_rows(tmp_path: Path) -> None:
    kernels, truth = part("measured.kernels"), part("truth")
    [large, small] = kernels.products(table(tmp_path, PRODUCTS))
    flops = 2 * 4096**3
    assert large.seconds == pytest.approx(flops / 700e12)
    assert large.predicted > flops / 989e12
    assert small.predicted > 2 * 4096**2 / 8e12  # its memory
    found = list(kernels.attentions(table(tmp_path, ATTENTIONS)))
    assert [(x.sizes[3], x.causal, x.passes) for x in found] == [
        (128, False, "fwd"),
        (128, True, "bwd"),
        (64, False, "fwd"),
    ]
    whole, gradient, narrow = found
    assert whole.seconds == pytest.approx(4 * 4 * 16 * 4096**2 * 128 / 600e12)
    assert 0.5 < 2 * gradient.predicted / whole.predicted / 2.5 < 2
    assert 0.5 < narrow.predicted / whole.predicted < 1  # as heads of 64 fill tiles badly
    lines = list(truth.kernels([large, small, *found]))
    assert [line.count("|") for line in lines] == [9] * 4
    assert lines[0].startswith("| h100 | FA3 | 128 | 2 | ")


def test_the_last_line_has_the_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = "tpu,4,1,,xla,all_reduce,1024,10,a\n"
    main = part("nccl").main
    assert main(["--rows", str(table(tmp_path, COLLECTIVES + SENT + other)), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 rows are of machines that do not ship with collir: tpu"
    found = json.loads(lines[-1])
    assert found.keys() == {"mape", "median", "pairs", "rows", "near"}
    assert found["rows"] == 4
    measured = [line for line in lines if "measured" in line]
    assert len(measured) == 4
    assert main(["--rows", str(table(tmp_path, "a,b\n1,2\n"))]) == 1
    assert "this is no table of collectives" in capsys.readouterr().err


def test_steps_that_no_program_is_like_are_counted(tmp_path: Path) -> None:
    changes = ("bf16", "fp8"), ("h100", "tpu"), (",32,1,", ",,1,")
    others = "".join(LLAMA.replace(*change) for change in changes)
    rows = table(tmp_path, STEPS + GPT.format("NeMo", "") + LLAMA + others)
    found, reasons = published().steps(rows)
    assert [step.line for step in found] == [2, 3]
    expected = {"products in 8 bits": 1, "no machine of collir has the device": 1}
    assert reasons == Counter({**expected, "no global_batch": 1})


def test_a_step_is_the_configuration_that_its_row_says(tmp_path: Path) -> None:
    text = STEPS + LLAMA + GPT.format("llm-foundry", "4x100Gb RoCE")
    llama, gpt = published().steps(table(tmp_path, text))[0]
    model_of, configuration_of = published().model_of, published().configuration_of
    model = model_of(llama)
    c = configuration_of(model, llama)
    assert c.degrees == {"model": 2, "context": 2, "data": 2, "pipe": 2}
    assert (c.microbatches, c.zero, c.recompute, c.sequence) == (16, 3, True, ())
    assert model.step.parameters["inner"] == 768
    model = model_of(gpt)
    c = configuration_of(model, gpt)
    assert c.degrees == {"model": 2, "data": 8, "pipe": 1}
    assert (c.microbatches, c.zero, c.recompute, c.sequence) == (2, 1, False, ("model",))
    assert model.machine.levels[0].port == 50e9
    assert model.machine.device is not None
    assert model.machine.device.execution.maps, "a kernel for each operation"


def test_degrees_that_do_not_divide_have_no_configuration() -> None:
    row = dict(zip(STEPS.strip().split(","), LLAMA.strip().split(","), strict=True))
    module = published()
    step = module.step_of(2, row | {"tp": "3"})
    with pytest.raises(module.NotPredictedError, match="16 devices are no 3 x 2 x 2"):
        module.configuration_of(module.model_of(step), step)


@pytest.mark.turns
def test_steps_are_simulated(tmp_path: Path) -> None:
    text = STEPS + GPT.format("NeMo", "") + GPT.format("llm-foundry", "")
    (_, fused), (_, eager) = published().all_predicted(table(tmp_path, text))[0]
    assert 0 < fused.seconds < eager.seconds
    assert 0 < fused.peak < 80e9


PROGRAM = """
machine @a = @{}(nodes = 2)
mesh @m on @a {{ data = node:2 * gpu:8 }}
func @f(%x: f32[4096] partial(sum: data)) -> f32[4096] on @m {{
  %y = all_reduce %x over data
  return %y
}}
"""


@pytest.mark.parametrize("target", ["cost", "simulate", "explain"])
def test_reports_name_what_they_were_compared_with(target: str) -> None:
    [line] = accuracy_lines(preset("dgx_h100").op.value(), ["all_reduce"])
    assert line.startswith("beside measurements: all_reduce on H100, median error ")
    report = collir.emit(collir.parse(PROGRAM.format("dgx_h100")), target)
    assert report.splitlines()[-1] == line
    assert "beside measurements" not in collir.emit(
        collir.parse(PROGRAM.format("gcp_v100x8")), target
    )


def test_what_was_not_measured_is_said() -> None:
    machine = preset("dgx_h100").op.value()
    assert [*accuracy_lines(machine, ["all_to_all", "all_to_all"])] == [
        "beside measurements: no all_to_all on H100 (docs/truth.md)"
    ]
    assert STEP in next(accuracy_lines(machine, [STEP]))
    assert not [*accuracy_lines(preset("cpu_cluster").op.value(), ["all_reduce"])]
