"""What updates an argument leaves the program in the parts in which it entered, so that the next step can follow."""

import pytest
import torch
from xdsl.context import Context

from benchmarks.training_speed import Llama, flat_loss
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from tests.long_cases import also_long


@pytest.mark.parametrize("sharding", also_long(["auto", "ilp"], ["ilp"]))
@pytest.mark.parametrize("machine", also_long(["dgx-a100", "local-cpu"], ["dgx-a100"]))
def test_the_weight_of_a_norm(machine: str, sharding: str):
    """Ranks make its gradient in parts, and all of them need the whole weight."""
    torch.manual_seed(0)
    model, batch = Llama(1, 64, 2, 50), tuple(torch.randint(0, 50, (8, 32)) for _ in range(2))
    step = training_step(model, flat_loss, torch.optim.AdamW(model.parameters(), lr=1e-3), example_args=batch)
    module = import_step(step, batch)
    DtpParallelizePass(tp=2, machine=machine, sharding=sharding).apply(Context(), module)
    entry = entry_function(module)
    given = sorted((port.name, str(port.part)) for port in arguments_of(entry) if port.role in ("parameter", "state"))
    made = sorted((port.name, str(port.part)) for port in results_of(entry) if port.role != "output")
    assert given == made
