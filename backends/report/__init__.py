"""Reports: a simulation, or a search with its best plan's simulation, as one HTML file that needs nothing else.

`page` makes the file: what was found as JSON, in a page whose script (`report.js`, `report.css`) draws it. `run` says a
simulation in the page's terms, `plans` a search."""

from distir.backends.report.page import search_report, simulation_report

__all__ = ["search_report", "simulation_report"]
