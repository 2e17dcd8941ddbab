"""`distir search --from-config`: what is run today, beside what the search found; and the front of throughput and memory."""

import json
from pathlib import Path
from typing import Any

import pytest

from distir.tools.distir import main

SEARCH = "--machine dgx-a100 --devices 4 --microbatches 2 --exhaustive --top 100"


def found(mlp_step: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main(["search", str(mlp_step), *SEARCH.split(), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_of_the_grid_has_its_figures_and_rank(mlp_step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 8 --global-batch-size 16"
    said = found(mlp_step, capsys, "--from-config", f"megatron:{line}", "--no-overlap")
    today = said["today"]
    (same,) = [p for p in said["plans"] if (p["tp"], p["pp"], p["schedule"]) == (2, 2, "1f1b")]
    assert {name: today[name] for name in same if name != "rank"} == {n: v for n, v in same.items() if n != "rank"}
    assert today["rank"] == 1 + sum(p["throughput_per_second"] > same["throughput_per_second"] for p in said["plans"])
    assert today["rank_at_most"] == today["rank"]


def test_a_plan_of_another_sharding(mlp_step: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
    }
    (tmp_path / "ds.json").write_text(json.dumps(config))
    today = found(mlp_step, capsys, "--from-config", f"deepspeed:{tmp_path / 'ds.json'}")["today"]
    assert (today["dp"], today["microbatches"]) == (4, 2)
    assert today["notes"] == ['a plan cannot say: zero_optimization.offload_param = {"device": "cpu"}']
    # 484 weights and biases in f32, in four parts as far as four divides their dims.
    assert today["weights_bytes"] < 4 * 484 // 2
    assert (
        main(
            [
                "search",
                str(mlp_step),
                *SEARCH.split(),
                "--top",
                "1",
                "--from-config",
                f"deepspeed:{tmp_path / 'ds.json'}",
            ]
        )
        == 0
    )
    assert "today: D=4 T=1 P=1 K=2: " in capsys.readouterr().out


def test_the_front_is_of_plans_that_no_other_beats(mlp_step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = found(mlp_step, capsys)
    points = [(p["throughput_per_second"], p["peak_memory_bytes"]) for p in said["plans"]]
    beaten = [any(a >= s and b <= m and (a, b) != (s, m) for a, b in points) for s, m in points]
    front = {points[rank - 1] for rank in said["front"]}
    assert front == {point for point, is_beaten in zip(points, beaten, strict=True) if not is_beaten}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("megatron", "expected TOOL:FILE, or megatron:'ARGUMENTS'"),
        ("megatron:--tensor-model-parallel-size 3", "4 is no multiple of 3"),
        ("deepspeed:no.json", "no.json: no such file"),
    ],
)
def test_mistakes(mlp_step: Path, config: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(mlp_step), *SEARCH.split(), "--from-config", config]) == 1
    assert said in capsys.readouterr().err


def test_what_is_not_possible_today_is_said(mlp_step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "--pipeline-model-parallel-size 4 --micro-batch-size 16 --global-batch-size 48"
    assert (
        main(["search", str(mlp_step), *SEARCH.split(), "--from-config", f"megatron:{line}", "--batch-sizes", "16"])
        == 0
    )
    assert "today: " in capsys.readouterr().out
