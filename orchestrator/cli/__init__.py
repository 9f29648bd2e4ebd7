"""The command line: thin commands over the rooms; `main.py` is the only place that exits.
May import every room."""
