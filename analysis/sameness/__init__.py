"""Are models the same: bitwise, in their predictions, in their metrics. May import `stats` and below."""
