"""What do samples alone say? Intervals, change points, effect sizes: arrays in, numbers out."""
