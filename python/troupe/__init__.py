"""Python companions of Troupe. Nothing here is needed to train."""

__version__ = "0.1.0"
