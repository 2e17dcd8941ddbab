"""What is imported, and when: `distir-opt` starts with little, and torch, JAX and ONNX are only needed by what is theirs. How fast it starts:
`benchmarks/startup.py`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PASS = "check-module"
PROGRAM = """
func.func @main(%x: tensor<4xf32, #dist.on<0>>) -> tensor<4xf32, #dist.on<1>> {
  %0 = dist.send %x to 1 : tensor<4xf32, #dist.on<0>> -> tensor<4xf32, #dist.on<1>>
  func.return %0 : tensor<4xf32, #dist.on<1>>
}
"""
HEAVY = {"numpy", "onnx", "torch", "networkx", "pulp", "sympy"}


def test_driver_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "distir.tools.distir_opt", "-p", PASS],
        input=PROGRAM,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "xdsl" in imported
    assert not imported & HEAVY


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "jax", "jaxlib", "onnx"}:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Blocked())
from distir.tools.distir import main
sys.exit(main(sys.argv[1:]))
"""
"""distir where only what `pip install distir` brings is installed."""


def without_extras(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns"), "DISTIR_NO_CACHE": "1"},
    )


def test_simulating_a_program_needs_no_extra():
    program = str(ROOT / "tests" / "filecheck" / "tools" / "simulate.mlir")
    done = without_extras("simulate", program, "--machine", "dgx-2", "--json")
    assert done.returncode == 0, done.stderr
    assert '"makespan_seconds"' in done.stdout


def test_simulating_an_attention_kernel_needs_no_torch(tmp_path: Path):
    tensor = "tensor<2x4x8x16xf16>"
    (tmp_path / "attention.mlir").write_text(f"""
func.func @main(%q: {tensor}, %k: {tensor}, %v: {tensor}) -> {tensor} {{
  %0 = "aten.scaled_dot_product_attention"(%q, %k, %v) {{is_causal = true}} : ({tensor}, {tensor}, {tensor}) -> {tensor}
  func.return %0 : {tensor}
}}""")
    done = without_extras("simulate", str(tmp_path / "attention.mlir"), "--machine", "dgx-2", "--by", "kind")
    assert done.returncode == 0, done.stderr
    assert "\nattention " in done.stdout


def test_simulating_a_training_step_needs_no_torch(mlp_step: Path):
    """Types are in the text, and the flops of matrix products follow from them."""
    done = without_extras("simulate", str(mlp_step), "--machine", "dgx-2", "--json")
    assert done.returncode == 0, done.stderr
    with_torch = subprocess.run(
        [sys.executable, "-m", "distir.tools.distir", "simulate", str(mlp_step), "--machine", "dgx-2", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    assert done.stdout == with_torch.stdout


def test_what_needs_an_extra_says_which(tmp_path: Path, mlp_step: Path):
    sequential = str(ROOT / "tests" / "filecheck" / "paper" / "figure_sequential.mlir")
    (tmp_path / "model.onnx").write_bytes(b"\\0")
    for library, *command in (
        ("onnx", "verify", sequential, sequential),
        ("onnx", "import", str(tmp_path / "model.onnx")),
        ("torch", "doctor", str(mlp_step)),
    ):
        done = without_extras(*command)
        assert done.returncode == 1
        said = f"this needs {library}, which is not installed: pip install 'distir[{library}]'\n"
        assert done.stderr.endswith(said)
        assert done.stderr.count("\n") == 1
