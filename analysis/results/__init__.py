"""What the analysis produces: tables, findings, estimates, and how they are printed. May import `load`."""
