"""Calibration: measures operations and messages on this machine, and fits a machine description to their times.

probes   small level-3 programs, each of one kind of operation on given shapes
measure  runs them on all processes at once (`worker` is one of them), as the torch backend runs any program
fit      from the times to a machine, with the error of each kind
"""
