"""Programs that belong to no study: tried on several thread counts, recorded, replayed.
May import `cores` and below."""
