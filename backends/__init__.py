"""How a program leaves: per-rank execution on torch.distributed, traces and reports."""
