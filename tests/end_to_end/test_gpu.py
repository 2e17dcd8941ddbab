"""What runs on GPUs: kernels, NCCL, the allocator's peak and calibration. Tests say how many GPUs they need where there are fewer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from xdsl.context import Context

from benchmarks.training_speed import gpt
from distir.backends.torch import execute
from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.portable import distir_runtime
from distir.backends.torch.program import Program
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.tools.distir import main
from tests.end_to_end.test_emission import adamw_step

GPUS = torch.cuda.device_count()


def needs(count: int) -> pytest.MarkDecorator:
    return pytest.mark.skipif(count > GPUS, reason=f"needs {count} GPU{'s' * (count > 1)}, torch finds {GPUS}")


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({}, marks=needs(1)),
        *(
            pytest.param(plan, marks=needs(2))
            for plan in ({"dp": 2, "zero": 3, "overlap": True}, {"tp": 2}, {"pp": 2, "microbatches": 2})
        ),
    ],
    ids=str,
)
def test_steps_are_those_of_processes(plan: dict[str, Any]) -> None:
    module, values = adamw_step()
    if plan:
        DtpParallelizePass(**plan).apply(Context(), module)
    batch = {name: values[name] for name in ("input", "label")}
    here, there = (execute(module, values, backend, following=[batch]).outputs for backend in ("gloo", "nccl"))
    for name, value in here.items():
        np.testing.assert_allclose(there[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@needs(1)
def test_the_peak_is_the_simulations() -> None:
    """Of what the allocator gave to tensors, beside what libraries hold."""
    model, loss, batch = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    module = import_step(training_step(model, loss, optimizer, example_args=batch), batch)
    ports, made = arguments_of(entry_function(module)), [p.name for p in results_of(entry_function(module))]
    updates = {i: made.index(p.name) for i, p in enumerate(ports) if p.name in made}
    values = {n: np.asarray(v) for n, v in weights_of(module).items()}
    given = [p.name for p in ports if p.role in ("input", "label")]
    values |= {name: value.numpy() for name, value in zip(given, batch, strict=True)}
    device = torch.device("cuda", 0)
    arguments = [torch.from_numpy(np.array(values[p.name])).to(device) for p in ports]
    try:
        run = Program(module, ElementTypes(), device).function("main")
        with torch.inference_mode():
            for _ in range(2):  # then updates are in the memory of their arguments
                distir_runtime.step(run, arguments, updates)
            of_libraries = torch.cuda.memory_allocated() - sum(x.nbytes for x in arguments)
            torch.cuda.reset_peak_memory_stats()
            distir_runtime.step(run, arguments, updates)
    finally:
        distir_runtime.start(0, torch.device("cpu"))
    simulated = simulate(module, "dgx-h100").peak_memory_bytes[0]
    assert torch.cuda.max_memory_allocated() - of_libraries == pytest.approx(simulated, rel=0.1)


@needs(1)
def test_a_gpu_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    assert main(["calibrate", "-o", str(path), "--quick", "--device", "cuda", "--processes", "1"]) == 0
    assert load_machine(path).name == "here"
