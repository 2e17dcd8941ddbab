"""The one exception for a user's mistake, which tools print as one line and exit with status 1. In goes any error;
out comes its text, for a missing library with how to install it."""

EXTRAS = {"jax": "jax", "jaxlib": "jax", "onnx": "onnx", "torch": "torch"}
"""The extra of distir that a library comes with."""


class DistirError(Exception):
    """A user's mistake (file, option, shape, machine): says what was wrong, where, and what to do, in one line."""


def is_extra(error: BaseException) -> bool:
    """Whether a library is missing that comes with an extra."""
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS


def reason_of(error: BaseException) -> str:
    """What an error says; of a library that is not there, how to install it."""
    if not isinstance(error, ModuleNotFoundError) or not is_extra(error):
        return str(error)
    library = (error.name or "").partition(".")[0]
    return f"this needs {library}, which is not installed: pip install 'distir[{EXTRAS[library]}]'"
