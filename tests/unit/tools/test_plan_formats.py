"""Configurations of other tools as plans: a configuration gives a plan, of which the tool's configuration gives the same plan; what one cannot say is named."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distir.dialects.errors import DistirError
from distir.tools.distir import main
from distir.tools.plan_files import SETTINGS, PlanFile
from distir.tools.plan_formats import NAMES, completed, load_format, read_config

GPT3_175B = """
# Narayanan et al., 2021: 1,024 A100s, T = 8, P = 16; the batch of 1,536 sequences.
torchrun --nproc_per_node 8 --nnodes 128 pretrain_gpt.py \\
  --num-layers 96 --hidden-size 12288 --lr 6e-5 --bf16 \\
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --sequence-parallel \\
  --num-layers-per-virtual-pipeline-stage 3 --micro-batch-size 1 --global-batch-size=1536 \\
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\
  --use-distributed-optimizer --overlap-grad-reduce --tp-comm-overlap
"""
LLAMA3_70B = """
[model]
name = "llama3"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""
DEEPSPEED = {
    "train_batch_size": 256,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}},
}
FSDP = """
distributed_type: FSDP
mixed_precision: 'bf16'
num_processes: 16
gradient_accumulation_steps: 4
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_offload_params: false
  fsdp_sharding_strategy: SHARD_GRAD_OP
"""


def test_megatron() -> None:
    found = read_config("megatron", GPT3_175B, None)
    expected = {"dp": 8, "tp": 8, "pp": 16, "microbatches": 192, "batch_size": 1536, "schedule": "interleaved"}
    # 96 layers are 3 layers for each of 2 virtual stages of 16 ranks.
    expected |= {
        "virtual_stages": 2,
        "zero": 1,
        "overlap": True,
        "sequence_parallel": True,
        "recompute": "full",
    }
    assert found.settings == expected
    assert found.unsaid == ["--tp-comm-overlap"]
    arguments = GPT3_175B[GPT3_175B.index("--num-layers") :].replace("\\\n", "").strip()
    assert read_config("megatron", arguments, 1024) == found  # on one line, longer than a file's name can be


def test_torchtitan() -> None:
    found = read_config("torchtitan", LLAMA3_70B + "# --", 64).settings
    expected = {
        "dp": 8,
        "tp": 8,
        "pp": 1,
        "microbatches": 1,
        "batch_size": 64,
        "schedule": None,
        "zero": 3,
    }
    assert found == {**expected, "recompute": "full", "sequence_parallel": True}
    piped = LLAMA3_70B.replace(
        "pipeline_parallel_degree = 1", 'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "interleaved1f1b"'
    )
    found = load_format("torchtitan").read(piped, 64).settings
    assert {name: found[name] for name in ("dp", "pp", "schedule", "virtual_stages", "microbatches")} == {
        "dp": 2, "pp": 4, "schedule": "interleaved", "virtual_stages": 2, "microbatches": 8,
    }  # fmt: skip


def test_deepspeed() -> None:
    found = load_format("deepspeed").read(json.dumps(DEEPSPEED), None)
    expected = {
        "dp": 32,
        "tp": 1,
        "pp": 1,
        "microbatches": 2,
        "batch_size": 256,
        "zero": 2,
        "overlap": True,
    }
    assert found.settings == {**expected, "schedule": None, "recompute": "none"}
    assert found.unsaid == ['zero_optimization.offload_optimizer = {"device": "cpu"}']


def test_accelerate() -> None:
    found = load_format("accelerate").read(FSDP, None).settings
    expected = {
        "dp": 16,
        "tp": 1,
        "pp": 1,
        "microbatches": 4,
        "batch_size": None,
        "zero": 2,
        "overlap": True,
        "recompute": "full",
    }
    assert found == {
        **expected,
        "schedule": None,
    }


POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def plans(draw: st.DrawFn) -> PlanFile:
    dp, tp, pp, k = draw(POWERS), draw(POWERS), draw(POWERS), draw(POWERS)
    said: dict[str, Any] = {"dp": dp, "tp": tp, "pp": pp, "microbatches": k, "batch_size": dp * k * draw(POWERS)}
    said |= {
        "zero": draw(st.integers(0, 3)),
        "overlap": draw(st.booleans()),
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "zb-h1"])),
    }
    said |= {"recompute": draw(st.sampled_from(["none", "full", "selective", "full:2"]))}
    said |= {
        "gradient_type": draw(st.sampled_from([None, "bf16", "f32"])),
        "sequence_parallel": tp > 1 and draw(st.booleans()),
        "matmul_type": draw(st.sampled_from([None, "f8E4M3FN", "f16"])),
        "matmul_keep": draw(st.sampled_from([None, "output_layer", "output,layers.0"])),
    }
    said |= {"dp_replicate": draw(st.sampled_from([each for each in (1, 2, 4) if dp % each == 0]))}
    said |= {"context_parallel": draw(st.sampled_from([1, 2])), "expert_parallel": draw(st.sampled_from([1, 2]))}
    return PlanFile(completed(said))


@pytest.mark.parametrize("tool", NAMES)
@given(plan=plans())
@settings(max_examples=60, deadline=None)
def test_a_configuration_gives_the_plan_that_it_was_written_for(tool: str, plan: PlanFile) -> None:
    """All settings but those of which the tool was said not to know them; and what is read again is written the same."""
    form = load_format(tool)
    text, unsaid = form.write(plan)
    lost = {said.split(" ")[0] for said in unsaid}
    again = form.read(text, plan.devices // (plan.setting("context_parallel") if "context_parallel" in lost else 1))
    assert again.unsaid == []
    for name in set(SETTINGS) - lost:
        assert (name, PlanFile(again.settings).setting(name)) == (name, plan.setting(name))
    if not lost:
        assert form.write(PlanFile({**again.settings})).text == text


@pytest.mark.parametrize(
    ("tool", "text", "said"),
    [
        ("megatron", "--tensor-model-parallel-size $TP", "--tensor-model-parallel-size: expected a whole number of at least 1, got '$TP'"),
        ("megatron", "--tensor-model-parallel-size --1 --", "--tensor-model-parallel-size: expected a whole number of at least 1, got '--1'"),
        ("megatron", "--pipeline-model-parallel-size 2", "do not say how many devices there are: give --devices N"),
        ("megatron", "--world-size 6 --tensor-model-parallel-size 4", "6 devices of tensor x pipeline x context parallel ranks: 6 is no multiple of 4"),
        ("megatron", "--world-size 4 --micro-batch-size '", "not an argument line"),
        ("megatron", "no/such/file", "no such file, and no argument line"),
        ("torchtitan", "[parallelism --", "not a TOML file"),
        ("torchtitan", "# --\n[parallelism]\ntensor_parallel_degree = true", "parallelism.tensor_parallel_degree: expected a whole number"),
        ("deepspeed", '["--"]', "expected an object"),
        ("deepspeed", '{"--": 1, "train_batch_size": "auto"}', "does not say how many devices there are"),
        ("deepspeed", '{"--": 1, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}', "8 is no multiple of 6"),
        ("accelerate", "a: !!python/object/apply:os.getcwd []  # --", "not a YAML file"),
        ("accelerate", "distributed_type: TPU  # --", "distributed_type: expected one of NO"),
        ("megatrom", "--x", "no tool 'megatrom' (did you mean megatron?)"),
    ],
)  # fmt: skip
def test_mistakes(tool: str, text: str, said: str) -> None:
    with pytest.raises(DistirError) as refused:
        read_config(tool, text, None)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "titan.toml").write_text(LLAMA3_70B)
    plan = str(tmp_path / "plan.json")
    assert main(["plan", "import", "torchtitan", str(tmp_path / "titan.toml"), "--devices", "64", "-o", plan]) == 0
    assert main(["plan", "export", "torchtitan", plan, "-o", str(tmp_path / "again.toml")]) == 0
    again = tomllib.loads((tmp_path / "again.toml").read_text())
    assert again["parallelism"]["data_parallel_shard_degree"] == again["parallelism"]["tensor_parallel_degree"] == 8
    assert again["training"] == {"local_batch_size": 8, "global_batch_size": 64}
    capsys.readouterr()
    assert main(["plan", "export", "deepspeed", plan]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["zero_optimization"]["stage"] == 3
    assert "deepspeed cannot say: recompute full" in err
    assert main(["plan", "export", "deepspeed", plan, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["tool"], said["configuration"]) == ("deepspeed", out)
    assert any(line.startswith("recompute full") for line in said["unsaid"])
    line = ["--tensor-model-parallel-size", "8", "--micro-batch-size", "4", "--global-batch-size", "512"]
    assert main(["plan", "import", "megatron", "--devices", "16", "--json", "--", *line]) == 0
    found = json.loads(capsys.readouterr().out)["plan"]["settings"]
    assert (found["dp"], found["tp"], found["microbatches"]) == (2, 8, 64)
