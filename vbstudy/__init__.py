"""The library for training programs: `from vbstudy import exact, report`.

`exact` trains the same bits on any number of threads, `report` reports metrics, predictions and weights to a
study. It needs numpy and the framework of the program, and imports no other package of this project."""

__version__ = "0.1.0"
