"""The agent as the host sees it: its archive, its messages, its data, and the runs it is asked for.
May import `study` and below."""
