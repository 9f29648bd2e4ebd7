"""Every reader of what others made, given damaged input: it gives a value or its own error within ten seconds
and 512 MiB. `python -m tests.fuzz SECONDS [READER...]` draws inputs so long; `corpus/` has inputs, by reader,
that are always tried: what once failed belongs there."""
