"""Somebody's own projects as workloads: unpacked, run unmodified, watched, and read.

service.py       one run from request to files, as `guest.agent` does for the networks of ours
environment.py   an interpreter with the project's requirements, built once a guest
randomness.py    seeds, or random numbers that are recorded once and given back
command.py       runs the command: output, time and disk limited, everything it started ended with it
hooks/           what a Python process of the project does at its start: seeds, thread counts, notices
notices.py       reads what the hooks noticed
numbers.py       metrics from output and files; `events.py` reads TensorBoard's
artifacts.py     predictions and weights, read without unpickling
"""
