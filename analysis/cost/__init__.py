"""Time to train and to converge. May import `stats` and below."""
