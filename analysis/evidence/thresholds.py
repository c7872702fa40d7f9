"""From which size on is a difference one? The numbers that several rules share; what each moves is in docs/NUMBERS.md."""

from typing import Final

# Rates whose ratio is below this are the same: 20 %, published.
STEADY: Final = 1.2
# Times as much work, or as many calls at a time, from which an engine is fuller than a minute's swing makes it; own default.
FULLER: Final = 1.25
# Times as long that a token, a first token or a call must take to be slower: advice on token rates that sag is published, the factor is an own default.
LONGER: Final = 1.3
# Times as much from which a thing is much more than it was, or than its peers have; own default.
MUCH_MORE: Final = 1.5
# Below this part of a thing, another one is not worth naming beside it; own default.
LEAST_PART: Final = 0.1
# Above this part, it is most of a thing.
MOST: Final = 0.5
# Rank correlation of a time with the load from which it follows it: a tenth of what varies goes with it; own default.
FOLLOWS: Final = 0.3
