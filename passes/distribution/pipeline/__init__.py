"""Pipelines: `stages` and `weights` (which stage an op belongs to), `layout` (which devices), `staged` (functions of stages on devices, with
`bundles`: what travels together, and `at_rows`: at a number of rows), `tasks` (schedules), `replica` and `assemble` (what one replica does,
and the entry), `recurring` (steps of a schedule that recur, as functions), `streams` (messages beside computation), `one_rank` (programs
of one tensor rank that stands for all)."""
