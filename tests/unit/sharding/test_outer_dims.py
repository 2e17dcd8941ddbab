"""Of equally fast plans the one is taken that cuts outer dims, whose parts lie together in memory."""

import torch
from torch import nn
from xdsl.context import Context

from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import arguments_of, entry_function
from distir.passes.dtp_parallelize import DtpParallelizePass


def test_state_is_stored_in_rows() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    step = training_step(model, nn.functional.mse_loss, torch.optim.AdamW(model.parameters()))
    module = import_step(step, (torch.ones(64, 64), torch.ones(64, 64)))
    DtpParallelizePass(dp=2, sharding="ilp", zero=1, machine="local-cpu").apply(Context(), module)
    stored = [p for p in arguments_of(entry_function(module)) if p.role == "state" and p.part is not None]
    matrices = {port.part.dims for port in stored if port.part is not None and len(port.part.dims) == 2}
    assert matrices == {(((0, 32),), ((0, 64),)), (((32, 64),), ((0, 64),))}
