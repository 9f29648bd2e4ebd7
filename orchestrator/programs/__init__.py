"""Programs that belong to no study: tried under several conditions, hardened, recorded, replayed.
May import `cores` and below."""
