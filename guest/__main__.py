"""`python agent.pyz` and `python -m guest`."""

import sys

from guest.agent import main

sys.exit(main())
