"""The one exception for a user's mistake; tools print it as one line and exit with status 1."""


class DistirError(Exception):
    """A user's mistake (file, option, shape, machine): says what was wrong, where, and what to do, in one line."""
