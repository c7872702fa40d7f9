"""Which arrays do functions take? The collector's types of numpy columns, for all of analysis."""

from overrun.collector.arrays import BoolArray, FloatArray, IndexArray, IntArray

__all__ = ["BoolArray", "FloatArray", "IndexArray", "IntArray"]
