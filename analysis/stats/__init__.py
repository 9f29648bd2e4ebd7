"""Statistics as pure functions of arrays: intervals, tests, effects, power, metrics. May import `results`."""
