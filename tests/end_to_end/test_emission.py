"""Programs as readable PyTorch: what `distir run --emit` writes computes what `distir run` computes, without distir, whatever a model calls things."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from distir.backends.torch import execute
from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.emission import emit
from distir.backends.torch.fetches import begun_by_callers
from distir.backends.torch.program import Program
from distir.backends.torch.source import source_of
from distir.dialects.errors import DistirError
from distir.dialects.registry import program_context
from distir.frontends.pytorch import import_step, training_step
from distir.frontends.text import parse_program
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.module_check import check_module
from distir.interpreters.ranks import explicit
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.overlap_communication import OverlapCommunicationPass
from distir.passes.project_to_rank import project
from tests.small_models import gpt2, mlp


def adamw_step() -> tuple[ModuleOp, dict[str, np.ndarray]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    step = training_step(model, nn.functional.cross_entropy, torch.optim.AdamW(model.parameters(), lr=1e-2))
    batch = torch.randn(16, 8), torch.randint(0, 4, (16,))
    module = import_step(step, batch)
    values = {name: np.asarray(value) for name, value in weights_of(module).items()}
    return module, values | {"input": batch[0].numpy(), "label": batch[1].numpy()}


def torchrun(folder: Path, ranks: int, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            "train.py",
            *words,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "OMP_NUM_THREADS": "1", **environment},
        timeout=120,
    )


@pytest.mark.parametrize(
    "plan",
    [
        {"dp": 2, "overlap": True},
        pytest.param({"dp": 2, "tp": 2}, marks=pytest.mark.long),
        pytest.param({"pp": 2, "microbatches": 4}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_two_steps_without_distir(plan: dict[str, int], tmp_path: Path) -> None:
    module, values = adamw_step()
    DtpParallelizePass(**plan).apply(Context(), module)
    files = {path.name for path in emit(module, values, tmp_path / "out")}
    assert {"train.py", "distir_runtime.py", "program.json", "weights.safetensors", "inputs.safetensors"} < files
    for text in (path.read_text() for path in (tmp_path / "out").glob("ranks_*.py")):
        assert "import distir\n" not in text
        assert "# dist." in text
    # A folder that hides distir stands before it on the path.
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "distir.py").write_text("raise ImportError('hidden')")
    ranks = 2 * plan.get("tp", 1)
    ran = torchrun(tmp_path / "out", ranks, "--steps", "2", "-o", "o.safetensors", PYTHONPATH=str(tmp_path / "hidden"))
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[:3] for line in ran.stdout.splitlines()] == [["step", "1", "loss"], ["step", "2", "loss"]]
    batch = {name: values[name] for name in ("input", "label")}
    expected = execute(module, values, following=[batch]).outputs
    found = load_file(tmp_path / "out" / "o.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_ranks_that_are_alike_share_a_module(tmp_path: Path) -> None:
    module, values = adamw_step()
    DtpParallelizePass(dp=2, pp=2, microbatches=2).apply(Context(), module)
    names = [path.name for path in emit(module, values, tmp_path / "out") if path.name.startswith("ranks_")]
    assert names == ["ranks_0_1.py", "ranks_2_3.py"]
    text = (tmp_path / "out" / "ranks_0_1.py").read_text()
    assert "    0: (2," in text
    assert "    1: (3," in text  # the ranks that each sends to
    entering, leaving = text.partition("\ndef main(")[2].split("\n    return [\n")[:2]
    parameters = [line.partition("# parameter ")[2] for line in entering.splitlines() if "# parameter " in line]
    assert parameters
    assert parameters == [line.partition("# parameter ")[2] for line in leaving.splitlines() if "# parameter " in line]


def test_allreduces_of_the_same_ranks_are_one_object(tmp_path: Path) -> None:
    model = gpt2()
    emit(model.distributed(tp=2), model.inputs, tmp_path / "out")
    text = next((tmp_path / "out").glob("ranks_*.py")).read_text()
    assert text.count(" = AllReduce(") == 1
    assert text.count(" = allreduce(") > 1


def test_operators_of_distir(tmp_path: Path) -> None:
    """A model of ONNX operators needs distir's kernels, and says so."""
    model = mlp()
    module = model.distributed(dp=2)
    emit(module, model.inputs, tmp_path / "out")
    text = next((tmp_path / "out").glob("ranks_*.py")).read_text()
    assert "they need distir" in text
    ran = torchrun(tmp_path / "out", 2, "-o", "o.safetensors", PYTHONPATH=str(Path(__file__).parents[2] / ".ns"))
    assert ran.returncode == 0, ran.stderr
    found = load_file(tmp_path / "out" / "o.safetensors")
    for name, value in model.sequential(np.float32).items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * max(1.0, np.abs(value).max()), err_msg=name)


HOSTILE = (
    'x"""\nimport os; os._exit(66)\n"""',
    "y\\n'); raise SystemExit(66) #",
    "__import__('os')._exit(66)",
    "z\r\f\x0b\u2028import os; os._exit(66)",
    "torch",
    "aten_mm",
    "lambda",
    "given",
    "\N{SNOWMAN}",
    "",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_model_is_executed(name: str, tmp_path: Path) -> None:
    """Names of arguments, values, functions and modules, and strings, are hostile."""
    module, values = adamw_step()
    expected = Program(module, ElementTypes(), torch.device("cpu")).function("main")
    ports = arguments_of(entry_function(module))
    given = [torch.from_numpy(np.array(values[port.name])) for port in ports]
    with torch.inference_mode():
        before = expected([*given])
    for op in module.walk():
        op.attributes["dist.module"] = StringAttr(name)
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            value._name = name  # pyright: ignore[reportPrivateUsage]
    entry = entry_function(module)
    entry.sym_name = StringAttr(name)
    entry.arg_attrs = type(entry.arg_attrs)(
        [type(a)({**a.data, "dist.name": StringAttr(f"{name}{i}")}) for i, a in enumerate(entry.arg_attrs or ())]
    )
    source = source_of(module, ElementTypes(), name)
    text, _ = source.render({0: source})
    compile(text, "text", "exec")
    with torch.inference_mode():
        after = Program(module, ElementTypes(), torch.device("cpu")).function(name)([*given])
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_value_is_freed_at_its_last_use() -> None:
    module, _ = adamw_step()
    source = source_of(project(module, 0), ElementTypes())
    lines = source.render({0: source})[0].splitlines()
    for i, line in enumerate(lines):
        for name in line.strip().removeprefix("del ").split(", ") if line.strip().startswith("del ") else ():
            following = [
                each
                for each in lines[i + 1 :]
                if name in each.replace(",", " ").replace("(", " ").replace(")", " ").split()
            ]
            assert not following, (line, following)


LATE = """
func.func @main(%x: tensor<4xf32>) -> tensor<2xf32> {
  %r, %w = func.call @layer(%x) : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  %a = "aten.neg"(%w) : (tensor<2xf32>) -> tensor<2xf32>
  %b = rank.wait %r on "" : tensor<2xf32>
  %c = "aten.add.Tensor"(%a, %b) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  func.return %c : tensor<2xf32>
}
func.func private @layer(%x: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %m = rank.wait %x on "reduce" : tensor<4xf32>
  %s = rank.reducescatter sum %m dim 0 group [0, 1] {rank.stream = "reduce"} : tensor<4xf32> -> tensor<2xf32>
  %t = "aten.relu"(%s) {rank.stream = "reduce"} : (tensor<2xf32>) -> tensor<2xf32>
  %w = dist.slice %x [0:2] : tensor<4xf32> -> tensor<2xf32>
  func.return %t, %w : tensor<2xf32>, tensor<2xf32>
}
"""


def test_what_is_made_of_a_message_is_made_where_it_is_waited_for() -> None:
    """A function returns it on its way; computation of its caller goes on until it needs it."""
    source = source_of(parse_program(program_context(), LATE, "late"), ElementTypes())
    text = source.render({0: source})[0]
    main, layer = text.partition("def main(")[2].split("def layer(")
    assert "wait(" not in layer
    assert "t = after(lambda s: aten_relu(s), s)" in layer
    assert main.index("aten_neg") < main.index("r = wait(r)") < main.index("aten_add")


def test_what_a_layer_gathers_is_begun_before_the_layer_before() -> None:
    """As far ahead as the program has it go to the stream for it; the layer waits for it."""
    three_layers = Path(__file__).parents[1] / "filecheck" / "passes" / "overlap-communication" / "fetched_ahead.mlir"
    module = parse_program(program_context(), three_layers.read_text(), "layers")
    OverlapCommunicationPass().apply(Context(), module)
    begun = begun_by_callers(explicit(module))
    check_module(begun)
    source = source_of(project(begun, 0), ElementTypes())
    stage, layer = source.render({0: source})[0].partition("def stage(")[2].split("def layer(")
    found = re.findall(r"allgather\w*\.start|layer\(|wait\(", stage)
    assert found == [
        "allgather_1.start",
        "layer(",
        "allgather_2.start",
        "layer(",
        "layer(",
    ]  # the first is begun in main
    assert ".start(" not in layer
    assert layer.count("wait(") == 1


def test_results_on_their_way_keep_a_bucket_at_most() -> None:
    from distir.backends.torch.portable.distir_runtime import Pending, after, elements, wait

    done: list[str] = []

    def message(name: str, result: object, sent_bytes: int) -> Pending:
        return Pending((), lambda: done.append(name) or result, sent_bytes)

    small = after(lambda x: x + 1, message("small", 1, 1 << 10))
    first, second = elements(message("tuple", (3, 4), 20 << 20), 2)
    assert not done
    large = after(lambda x, y: x * y, message("large", 5, 10 << 20), second)
    assert done == ["small", "tuple"]  # the oldest first, until what is sent for the rest is no more than a bucket
    assert [wait(each) for each in (large, first, small, 7)] == [20, 3, 2, 7]
    assert done == ["small", "tuple", "large"]


def test_gradients_of_a_convolution_are_one_operator() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, 2, 1), nn.ConvTranspose2d(4, 6, 3, groups=2), nn.Conv2d(6, 3, 1), nn.Flatten()
    )
    batch = torch.randn(3, 2, 9, 9), torch.randint(0, 147, (3,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    module = import_step(training_step(model, nn.functional.cross_entropy, optimizer), batch)
    program = Program(module, ElementTypes(), torch.device("cpu"))
    assert program.text.count("[True, True, False]") == 2  # the first one's input has no gradient
    ports, values = arguments_of(entry_function(module)), {n: np.asarray(v) for n, v in weights_of(module).items()}
    given = [p.name for p in ports if p.role in ("input", "label")]
    values |= {name: value.numpy() for name, value in zip(given, batch, strict=True)}
    outputs = program.function("main")([torch.from_numpy(values[p.name].copy()) for p in ports])
    found = {p.name: value for p, value in zip(results_of(entry_function(module)), outputs, strict=True)}
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.detach())


def test_a_result_takes_memory_that_is_nobody_elses() -> None:
    """Of what the program made and does not use again; never of what its caller has, of a view, or of what a view is of."""
    from distir.backends.torch.portable.distir_runtime import reusing

    double = reusing(torch.ops.aten.mul.Scalar, torch.ops.aten.mul_.Scalar)

    def line(given: list[torch.Tensor], *kept: torch.Tensor) -> bool:
        [x] = given
        given.clear()
        before, memory = x.clone(), x.data_ptr()
        y = double(x, 2)
        assert torch.equal(y, 2 * before)
        return y.data_ptr() == memory

    with torch.inference_mode():
        assert line([torch.ones(5000)])
        held = torch.ones(5000)
        assert not line([held])
        assert not line([held[1:]])
        assert not line([torch.ones(1).expand(5000)])
        assert torch.equal(held, torch.ones(5000))
        whole = torch.ones(5000)
        part = whole[1:]
        given = [whole]
        del whole
        assert not line(given)
        assert torch.equal(part, torch.ones(4999))
    assert not line([torch.ones(5000)])  # where gradients could be asked for


def test_a_run_leaves_its_arguments() -> None:
    module, values = adamw_step()
    run = Program(module, ElementTypes(), torch.device("cpu")).function("main")
    given = [torch.from_numpy(np.array(values[port.name])) for port in arguments_of(entry_function(module))]
    before = [value.clone() for value in given]
    with torch.inference_mode():
        first, second = run([*given]), run([*given])
    for a, b in [*zip(given, before, strict=True), *zip(first, second, strict=True)]:
        assert torch.equal(a, b)


def test_mistakes(tmp_path: Path) -> None:
    module, values = adamw_step()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(DistirError, match="no program that distir wrote"):
        emit(module, values, tmp_path / "mine")
    with pytest.raises(DistirError, match="no folder"):
        emit(module, values, tmp_path / "no" / "out")
    emit(module, values, tmp_path / "out")
    emit(module, values, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]
    ran = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        env={**os.environ, "WORLD_SIZE": "3"},
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == ["train.py: the program is of 1 ranks, got 3: torchrun --nproc-per-node=1"]
    alone = subprocess.run([sys.executable, "train.py"], cwd=tmp_path / "out", capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout.startswith("step 1  loss ")
    assert isinstance(entry_function(module), FuncOp)
