"""What would each fix buy? One file per fix: arrays of recorded times in, times after the fix out."""
