"""What this package raises."""


class Error(RuntimeError):
    """Offcut cannot do what was asked; the text says why, and what would help."""
