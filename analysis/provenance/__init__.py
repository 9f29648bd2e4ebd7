"""Which machines and software computed the runs, and whether they may be compared.
May import `results` and below."""
