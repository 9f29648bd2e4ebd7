"""The host side: provisions guests, sweeps runs over them, keeps the store."""

__version__ = "0.1.0"
