"""Records the random numbers of a program and gives them back (Chen et al., ICSE 2022, section 3.2).

preload.c      before libc: the random bytes that a program is given
library.py     compiles it, once
hooks/         in Python: seeds that are made of clocks and process numbers, and, where there is no
               library, the random bytes as well
program.py     what a program must find at its start for that, and what it left
streams.py     the folder in which the two keep what was drawn, and from which they give it back
recording.py   the file that is kept of it"""
