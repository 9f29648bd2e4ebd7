"""`vbstudy` in a process in which happens what ROLE.json of a folder says:
python -m tests.faults.host_main FOLDER ROLE ARGUMENTS..."""

import json
import sys
from pathlib import Path

from tests.faults import arming, soaking

if __name__ == "__main__":
    folder, role = Path(sys.argv[1]), sys.argv[2]
    if (folder / f"{role}.json").exists():
        arming.arm(arming.decode(json.loads((folder / f"{role}.json").read_text())), folder)
    soaking.arm("host", folder)
    from orchestrator.cli import main as cli

    sys.argv = ["vbstudy", *sys.argv[3:]]
    cli.main()
