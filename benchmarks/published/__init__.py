"""Predictions of published runs: `models` has their training steps, `runs` how they were run, the tables what was measured."""
