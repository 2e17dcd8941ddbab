"""Pipelines: `stages` and `weights` (which stage an op belongs to), `local_program` (a stage's functions), `tasks` and `table` (schedules), `streams` (messages
beside computation), `chunks` and `buckets` (what these send at once)."""
