"""A grid of plans: `configurations` (degrees, batch, schedule), `search` (makes and simulates their programs), `figures` (what is said of one), `best_first` with
`plan_bounds` (which ones need not be made), `shared_search` (over several processes)."""
