"""A step of training in the memory of the last one: parameters and optimizer state stay where they are, as eager PyTorch's do."""

from typing import Any

import pytest
import torch
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks.training_memory import peak_bytes
from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.portable import distir_runtime
from distir.backends.torch.program import Program
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.simulate import simulate
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.project_to_rank import project


@pytest.mark.parametrize("rows", [8, 256])
def test_a_step_holds_what_is_simulated(rows: int) -> None:
    """Bytes of tensors at the peak of a step, as PyTorch's profiler counts them: arguments, and what is allocated. At 8 rows the peak is in the update, at 256 in the
    backward part, which an operator's own workspace is not."""
    module, main, given, updates = step_of(rows)
    with torch.inference_mode():
        held = peak_bytes(given, lambda: distir_runtime.step(main, given, updates))
    (simulated,) = simulate(module, "local-cpu").peak_memory_bytes.values()
    assert held <= simulated <= 1.1 * held


def test_updates_are_in_the_memory_of_their_arguments() -> None:
    _, main, given, updates = step_of(8)
    expected = list(given)
    large = [i for i in updates if given[i].numel() == 64 * 64]
    assert len(large) == 6
    with torch.inference_mode():
        distir_runtime.step(main, given, updates)
        places = [given[i].data_ptr() for i in large]
        distir_runtime.step(main, given, updates)
        assert [given[i].data_ptr() for i in large] == places
        for _ in range(2):  # the same values as when nothing is handed over
            out = main(list(expected))
            expected = [out[updates[i]] if i in updates else value for i, value in enumerate(expected)]
        for i in updates:
            torch.testing.assert_close(given[i], expected[i], rtol=0, atol=0)


def step_of(rows: int) -> tuple[ModuleOp, Any, list[Any], dict[int, int]]:
    """AdamW on two layers: the program, its main function, its arguments, and which result each update is."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    batch = torch.randn(rows, 64), torch.randint(0, 64, (rows,))
    step = training_step(model, nn.functional.cross_entropy, torch.optim.AdamW(model.parameters()), example_args=batch)
    module = import_step(step, batch)
    values = dict(weights_of(module))
    DtpParallelizePass(dp=1).apply(Context(), module)
    entry = entry_function(module)
    ports, results = arguments_of(entry), results_of(entry)
    made = {port.name: i for i, port in enumerate(results)}
    given = [torch.from_numpy(values[p.name].copy()) if p.name in values else None for p in ports]
    for i, value in zip([i for i, each in enumerate(given) if each is None], batch, strict=True):
        given[i] = value
    main = Program(project(module, 0), ElementTypes(), torch.device("cpu")).function("main")
    updates = {i: made[p.name] for i, p in enumerate(ports) if p.name in made}
    return module, main, given, updates
