"""A PyTorch training step: an MLP classifier with cross-entropy and AdamW.

distir import examples.mlp_pytorch:step -o out/step.mlir
distir-opt out/step.mlir -p 'dtp-parallelize{dp=2 tp=2 pp=2 microbatches=2}' -o out/step_8.mlir
distir verify out/step.mlir out/step_8.mlir
"""

import torch
from torch import nn

from distir.frontends.pytorch import TrainingStep, training_step

BATCH, FEATURES, HIDDEN, CLASSES = 16, 8, 16, 4


def step() -> TrainingStep:
    """Three layers; labels of -100 are ignored, as cross_entropy has it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )
    example = torch.randn(BATCH, FEATURES), torch.randint(0, CLASSES, (BATCH,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return training_step(model, nn.functional.cross_entropy, optimizer, example_args=example)
