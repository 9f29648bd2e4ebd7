"""What is done beside a sweep: trace, probe, harden, robustness, runs done again.
May import `guests` and below."""
