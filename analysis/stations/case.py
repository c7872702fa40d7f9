"""One window with an onset, or without one, as every question about its state is asked of it."""

from dataclasses import dataclass, field

from overrun.analysis.stations.changes import Changes
from overrun.analysis.stations.demand import Demand
from overrun.analysis.stations.parts import Part
from overrun.analysis.stations.sides import Sides
from overrun.analysis.stations.station import Plant


@dataclass(frozen=True)
class Case:
    """The stations, the split of their bins, the demand, the parts with the one that holds the time first, and what changed beside the onset."""

    plant: Plant
    sides: Sides
    demand: Demand
    parts: list[Part]
    changes: Changes = field(default_factory=Changes)
