"""Reads a folder of runs into tidy frames. May import `guest.records` alone."""
