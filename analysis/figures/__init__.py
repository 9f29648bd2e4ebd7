"""Figures; they compute nothing. May import `cost`, `quality` and below."""

import os

# Figures have canvases of their own. A backend that this matplotlib does not know would end its import, and
# programs of the user are to have theirs.
_backend = os.environ.pop("MPLBACKEND", None)
try:
    import matplotlib as matplotlib
finally:
    if _backend is not None:
        os.environ["MPLBACKEND"] = _backend
