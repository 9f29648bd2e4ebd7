"""The vocabulary that guest, orchestrator and analysis share: requests, messages and stored records, and
their checked JSON. Imports the standard library alone."""
