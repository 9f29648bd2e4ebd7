"""The one error of exact mode."""


class ExactError(RuntimeError):
    """Exact mode is not available here, or does not cover something. The text states what, and what to do."""
