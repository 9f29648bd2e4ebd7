from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from analysis.scan.lint.registry import registry, version


def test_the_registry_has_every_operation_that_the_installed_torch_documents():
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    text = text[text.index("def use_deterministic_algorithms(") :]
    text = text[: text.index("In addition, several operations fill")]
    switch, _, raises = text.partition("normally-nondeterministic operations will throw a")
    known = registry()
    for part, behaviour in ((switch, "switch"), (raises, "raises")):
        names = re.findall(r"\* :(?:class|func):`([\w.]+)`", part)
        assert len(names) > 15
        for name in names:
            if name in ("torch.Tensor.__getitem__", "torch.Tensor.resize_"):
                continue  # an index of tensors and a quantised tensor cannot be told from the text
            methods = known.by_method.get(name.rpartition(".")[2], ()) if ".Tensor." in name else ()
            operations = [known.operations[i] for i in (*known.by_name.get(name, ()), *methods)]
            assert any(o.behaviour(None) == behaviour for o in operations) or name in (
                "torch.Tensor.scatter", "torch.Tensor.put_"
            ), f"{name} does not {behaviour}"  # fmt: skip


def test_behaviour_follows_the_ranges_of_versions():
    pad = next(o for o in registry().operations if "torch.nn.ReplicationPad2d" in o.names)
    assert [pad.behaviour(version(v)) for v in ("1.5", "1.6", "2.1.2", "2.2", "2.13.0+cpu")] == [
        "", "raises", "raises", "switch", "switch"
    ]  # fmt: skip
    assert pad.behaviour(None) == "switch"


def test_versions_are_compared_as_numbers():
    assert version("2.10.1+cu118") == (2, 10)
    assert version("1.9") < version("1.13")
    assert version("main") is None
    assert version("") is None
