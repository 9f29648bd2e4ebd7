"""The host side: provisions guests, sweeps runs over them, keeps the store. `cli` is its front door."""
