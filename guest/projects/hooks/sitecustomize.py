"""Python imports this at its start, because its folder stands first in PYTHONPATH. Runs our hook, then
the sitecustomize that would have been imported without us."""

import vbstudy_hook  # noqa: F401  (its import does all)
import vbstudy_imports

vbstudy_imports.run_next(__file__)
