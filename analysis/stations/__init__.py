"""What do metrics alone say of the machines behind an application? Stations, where requests are, since when that is worse, and why."""
