"""Records the random numbers of a program and replays them (Chen et al., ICSE 2022, section 3.2). May import
`records` and `vbstudy`.

preload.c      loaded before libc: records or replays random bytes
library.py     compiles it, once
hooks/         in Python: seeds made from clocks and process numbers, and random bytes where there is no
               library
program.py     prepares the environment of a program, reads what its processes left
streams.py     the folder with the draws while a program runs
recording.py   the file that is kept"""
