"""Guests at work, whatever provider made them: provisioned, opened as sessions, observed.
May import `providers`, `agent`, `cores` and below."""
