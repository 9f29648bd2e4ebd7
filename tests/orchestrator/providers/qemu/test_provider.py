"""What the provider and its machines do before any QEMU runs."""

from pathlib import Path

import pytest

from orchestrator.errors import PrerequisiteError
from orchestrator.inventory import guest_spec
from orchestrator.providers.qemu import provider as qemu
from orchestrator.providers.qemu.image import Image
from orchestrator.store.store import Store
from orchestrator.study import schema

IMAGE = Image(boot=None, root=Path("/a/root"), root_format="raw", libraries=None, identity="")
STUDY = '[provider]\nkind = "qemu"\n[[workload]]\nmodel = "lenet1"\ndataset = "digits"\n'


@pytest.mark.parametrize(
    ("gone", "package"), [("qemu-system-x86_64", "qemu-system-x86"), ("qemu-img", "qemu-utils")]
)
def test_a_sweep_where_a_program_was_uninstalled_names_its_package(tmp_path, monkeypatch, gone, package):
    monkeypatch.setattr(qemu, "_which", lambda program: None if program == gone else f"/usr/bin/{program}")
    made = qemu.QemuProvider(schema.parse(STUDY), Store(tmp_path), print)
    made._prepared = IMAGE, "tcg", "its image was built before"
    with pytest.raises(PrerequisiteError, match=f"apt install {package}$"):
        made.start(guest_spec(1), (0,))
