"""How good models are and how much repetitions vary. May import `stats` and below."""
