"""The machine a run finds: fingerprint, threads, seeds, load, tiers of hardening. May import `records`."""
