"""Traces, probes and hardening: tables and figures of each. May import `figures` and below."""
