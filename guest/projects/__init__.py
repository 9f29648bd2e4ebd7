"""Runs user projects as workloads: unpacked, run unmodified, observed, and their results read. May import
`machine`, `replay`, `records` and `training`.

service.py       one run from request to files, as `guest.agent` does for built-in networks
environment.py   an interpreter with the project's requirements, built once a guest
randomness.py    seeds, or random numbers that are recorded once and replayed
command.py       runs the command: limits output, time and disk, ends every process that it started
hooks/           what Python processes of the project run at their start: seeds, threads, notices, weights
notices.py       reads the notices of the hooks
numbers.py       metrics from output and files; `events.py` reads TensorBoard's
artifacts.py     predictions and weights, read without unpickling
"""
