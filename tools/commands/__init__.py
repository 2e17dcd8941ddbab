"""The sub-commands of `distir`, one file each: `add_parser` says what a user may type, `run` does it.

These modules are imported at every start: whatever is heavy is imported inside `run`."""
