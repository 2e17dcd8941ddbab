"""The one exception for a user's mistake, which tools print as one line and exit with status 1. In goes any error;
out comes its text, for a missing library with how to install it."""

EXTRAS = {"jax": "jax", "jaxlib": "jax", "onnx": "onnx", "torch": "torch"}
"""The extra of distir that a library comes with."""


class DistirError(Exception):
    """A user's mistake (file, option, shape, machine): says what was wrong, where, and what to do, in one line."""


def reason_of(error: BaseException) -> str:
    """What an error says; of a library that is not there, how to install it."""
    library = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if library not in EXTRAS:
        return str(error)
    return f"this needs {library}, which is not installed: pip install 'distir[{EXTRAS[library]}]'"
