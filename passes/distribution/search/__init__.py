"""A grid of plans: `configurations` (D/T/P, batch, schedule), `search` (builds and simulates them), `representative` (what is simulated
of one), `best_first` with `bounds` over `stage_functions` (which ones need not be)."""
