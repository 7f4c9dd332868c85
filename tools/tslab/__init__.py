"""tslab: the laboratory of temporal-slab, and epochs for Python programs that run under it (docs/python.md)."""

from tslab.binding import EpochError, Report, available, epoch, library, stats

__all__ = ["EpochError", "Report", "available", "epoch", "library", "stats"]
