"""The one error of exact mode."""


class ExactError(RuntimeError):
    """Exact mode cannot be had here, or does not cover something. The text says what, and what to do."""
