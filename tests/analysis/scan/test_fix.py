"""Files before and after --fix, byte for byte."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.scan import fix
from analysis.scan.fix import ChangedError, Fix, fixed, fixes
from analysis.scan.lint.rules import examples
from analysis.scan.results import Note
from analysis.scan.run import scan

HEAD = "import glob, os, torch\nfrom pathlib import Path\n"
LISTING = "import os, torch\nx = [load(n) for n in os.listdir('d')]\nf(x)\n"
SORTED = LISTING.replace("os.listdir('d')", "sorted(os.listdir('d'))")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = [f(n) for n in os.listdir(d)]", "x = [f(n) for n in sorted(os.listdir(d))]"),
        ("x = list(Path(d).iterdir())", "x = list(sorted(Path(d).iterdir()))"),
        ("x = [f(n) for n in (a / b).rglob('*')]", "x = [f(n) for n in sorted((a / b).rglob('*'))]"),
        ("x = list(map(f, glob.iglob(d)))", "x = list(map(f, sorted(glob.iglob(d))))"),
        ("f([*Path(d).glob('*')])", "f([*sorted(Path(d).glob('*'))])"),
        ("x = f(os.listdir(d)[0])", "x = f(sorted(os.listdir(d))[0])"),
        ("x = glob.glob(a) + glob.glob(b)\nf(x)", "x = sorted(glob.glob(a)) + sorted(glob.glob(b))\nf(x)"),
        ("é = 'ä'; f('ö', os.listdir('ü'), 'ß')", "é = 'ä'; f('ö', sorted(os.listdir('ü')), 'ß')"),
        ("x = f(os.listdir(\n    d  # )\n))", "x = f(sorted(os.listdir(\n    d  # )\n)))"),
        ("from os import listdir as ls\nf(ls(d))", "from os import listdir as ls\nf(sorted(ls(d)))"),
        ("f(glob.glob(os.listdir(a)[0]))", "f(sorted(glob.glob(sorted(os.listdir(a))[0])))"),
        ("import mmcv\nx = list(mmcv.scandir(d))", "import mmcv\nx = list(sorted(mmcv.scandir(d)))"),
    ],
)
def test_known_answers(before, after):
    assert fixed("main.py", (HEAD + before).encode())[0].decode() == HEAD + after


def test_of_the_example_that_fails_it_makes_the_one_that_passes():
    example = examples()["VB301"]
    assert fixed("main.py", example.fails.encode()) == (example.passes.encode(), 1)


@pytest.mark.parametrize(
    "text",
    [
        "for a, b, c in os.walk(d):\n    x.append(c)",  # read while folders are left out
        "for a, b, c, h in os.fwalk(d):\n    x += [os.stat(n, dir_fd=h) for n in c]",  # h is closed
        "import tensorflow as tf\nfor a, b, c in tf.io.gfile.walk(d):\n    x.append(c)",
        "import tensorflow as tf\nfor a, b, c in tf.gfile.Walk(d):\n    x.append(c)",
        "from tensorflow.python.platform import gfile\nfor a, b, c in gfile.Walk(d):\n    x.append(c)",
        "x = [f(e) for e in os.scandir(d)]",  # entries have no order
        "x = Path(d).iterdir()\nf(next(x))",  # a list has no next
        "f(Path(d).iterdir())",
        "import mmcv\nx = mmcv.scandir(d)\nf(next(x))",
        "import mmengine\nx = mmengine.scandir(d)\nf(next(x))",
        "from imutils import paths\nx = paths.list_images(d)\nf(next(x))",
        "from imutils import paths\nx = paths.list_files(d)\nf(next(x))",
        "async def g():\n    return [n async for n in p.iterdir()]",
        "x = f'{list(os.listdir(d))}'",  # places within are not exact
        "f(os.listdir(d))  # vbstudy: ignore[VB301]",
        "def sorted(x): return x\nf(os.listdir(d))",
        "from natsort import natsorted as sorted\nf(os.listdir(d))",
        "sorted = g\nf(os.listdir(d))",
        "f(sorted(os.listdir(d)))",
        "f(os.listdir(d)",  # no Python
    ],
)
def test_what_is_left_as_it_is(text):
    assert fixed("main.py", (HEAD + text).encode()) == ((HEAD + text).encode(), 0)


@pytest.mark.parametrize(
    ("encoding", "end"),
    [
        *itertools.product(("utf-8", "utf-8-sig", "latin-1", "cp1252", "shift_jis"), ("\n", "\r\n")),
        ("utf-8", "\r"),
    ],
)
@pytest.mark.parametrize("last", ["", "\n"])
def test_encodings_and_ends_of_lines_stay(encoding, end, last):
    word = "表" if encoding == "shift_jis" else "é"
    coding = "utf-8" if encoding == "utf-8-sig" else encoding
    text = f"# coding: {coding}\n# {word}\fa\v\nimport os, torch\nx = f('{word}', {{}})  # {word}{last}"
    before, after = (
        text.format(call).replace("\n", end).encode(encoding)
        for call in ("os.listdir(d)", "sorted(os.listdir(d))")
    )
    assert fixed("main.py", before) == (after, 1)


@pytest.mark.parametrize(
    "data",
    [
        LISTING.encode("utf-16"),
        b"# coding: utf-7\n# +AGE-\n" + LISTING.encode(),  # "a", which would be written as such
        b"# coding: nothing\n" + LISTING.encode(),
        b"# \xff\n" + LISTING.encode(),
    ],
)
def test_what_could_not_be_written_back_as_it_was_read_stays(data):
    assert fixed("main.py", data) == (data, 0)


@pytest.mark.needs("studies")
@pytest.mark.parametrize("line", ["x = {}\n", "f({})\n", "x = x + {}\n"])
def test_many_listings_of_which_each_hides_another(line):
    for text in (line.format(" + ".join(["os.listdir(d)"] * 40)), line.format("os.listdir(d)") * 40):
        after, calls = fixed("main.py", f"{HEAD}{text}f(x)\n".encode())
        assert calls == after.count(b"sorted(os.listdir(d))") == 40


CALLS = st.sampled_from(
    [
        "os.listdir({})",
        "glob.glob({})",
        "glob.iglob({})",
        "Path({}).iterdir()",
        "Path({}).rglob('é')",
        "list({})",
        "sorted({})",
        "f({}, 1)[0]",
        "({})",
        "d + {}",
        "[a for a in {}]",
        "tqdm({})",
        "zip({}, os.listdir(e))",
        "os.scandir({})",
        "next({})",
        "f'{{{}}}'",
        "(\n  {} # (é\n)",
    ]
)
STATEMENTS = st.sampled_from(
    [
        "x = {}",
        "for a in {}:\n    y.append(a)",
        "x += {}",
        "f({})",
        "y.extend({})",
        "return_({})",
        "x = g(x, {})",
    ]
)


@st.composite
def programs(draw) -> str:
    lines = []
    for statement in draw(st.lists(STATEMENTS, max_size=5)):
        text = "d"
        for call in draw(st.lists(CALLS, max_size=4)):
            text = call.format(text)
        lines.append(statement.format(text))
    return HEAD + "\n".join(lines) + "\nprint(x, y)\n"


class Unsorted(ast.NodeTransformer):
    """A tree without its calls of sorted()."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "sorted" else node


@given(programs(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_only_sorted_is_added_and_a_second_time_nothing(text, end):
    try:
        tree = ast.parse(text)
    except SyntaxError:  # quotes within an f-string
        return
    before = text.replace("\n", end).encode()
    after, calls = fixed("main.py", before)
    assert fixed("main.py", after) == (after, 0)
    assert after.count(b"sorted(") == before.count(b"sorted(") + calls
    assert ast.dump(Unsorted().visit(ast.parse(after))) == ast.dump(Unsorted().visit(tree))


@given(st.binary(max_size=200))
def test_any_bytes(data):
    assert fixed("main.py", data + LISTING.encode())[1] in (0, 1)


# ---- files


def only_fix(path) -> Fix:
    (found,) = fixes(scan([path]))
    assert isinstance(found, Fix)
    return found


def test_only_listings_that_the_scan_reports_are_sorted(tmp_path):
    text = (
        "import os, torch\nmodel = torch.nn.Linear(3, 1)\no = torch.optim.SGD(model.parameters(), 1.0)\n"
        "for name in {}:\n    model(load(name)).sum().backward()\n    o.step()\n"
        "def never_called():\n    return [load(name) for name in os.listdir('others')]\n"
    )
    for listing, becomes in (
        ("os.listdir('a')", "sorted(os.listdir('a'))"),
        ("(os.listdir('a') +\n  os.listdir('b'))", "(sorted(os.listdir('a')) +\n  sorted(os.listdir('b')))"),
    ):
        (tmp_path / "main.py").write_text(text.format(listing))
        assert only_fix(tmp_path).after.decode() == text.format(becomes)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_the_diff_is_one_that_git_applies(tmp_path, monkeypatch, end, last):
    monkeypatch.chdir(tmp_path)
    lines = [LISTING if n % 5 == 0 else f"# {n} é" for n in range(40)]
    name = "a folder/ma in.py"
    (tmp_path / "a folder").mkdir()
    (tmp_path / name).write_bytes(("\n".join(lines).strip() + last).replace("\n", end).encode("latin-1"))
    text = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"# coding: latin-1" + end.encode() + text)
    monkeypatch.setattr(fix, "CONTEXT", 2)
    found = only_fix(Path("a folder"))
    assert found.calls == 8
    subprocess.run(["git", "apply", "-p1", "--unidiff-zero", "-"], input=found.diff(), check=True)
    assert (tmp_path / name).read_bytes() == found.after


@pytest.mark.parametrize(
    ("here", "named", "applied"),
    [
        ("other", "../src", "."),
        ("other", "{}", "."),
        ("src", "..", "src"),
        ("src", "{}/src/src/main.py", "src"),
        (".", "{}", "."),
        ("..", "{}", ".."),
    ],
)
def test_a_diff_is_applied_in_the_current_folder_or_at_the_root(tmp_path, monkeypatch, here, named, applied):
    root = tmp_path / "project"
    for folder in (root / "src" / "src", root / "other"):
        folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / "src" / "src" / "main.py").write_text(LISTING)
    monkeypatch.chdir(root / here)
    diff = only_fix(Path(named.format(root))).diff()
    subprocess.run(["git", "apply", "-p1"], input=diff, cwd=root / applied, check=True)
    assert (root / "src" / "src" / "main.py").read_text() == SORTED


def test_a_written_file_keeps_its_permissions_and_leaves_nothing_beside_it(tmp_path):
    file = tmp_path / "main.py"
    file.write_text(LISTING)
    file.chmod(0o750)
    only_fix(tmp_path).write()
    assert file.read_text() == SORTED
    assert file.stat().st_mode & 0o777 == 0o750
    assert os.listdir(tmp_path) == ["main.py"]
    assert list(fixes(scan([tmp_path]))) == []


def test_links_and_second_names_are_not_changed(tmp_path):
    outside, project = tmp_path / "outside.py", tmp_path / "project"
    project.mkdir()
    outside.write_text(LISTING)
    (project / "link.py").symlink_to(outside)
    (project / "one.py").write_text(LISTING)
    os.link(project / "one.py", project / "two.py")
    found = list(fixes(scan([project])))
    assert all(isinstance(each, Note) and "is a link, or has a second name" in each.text for each in found)
    assert len(found) == 3


def test_a_file_that_changed_meanwhile_or_became_a_link_is_not_written(tmp_path):
    file = tmp_path / "main.py"
    file.write_text(LISTING)
    found = only_fix(tmp_path)
    file.write_text(LISTING + "# more\n")
    with pytest.raises(ChangedError, match="changed meanwhile"):
        found.write()
    assert file.read_text() == LISTING + "# more\n"
    (tmp_path / "other.py").write_text(LISTING)
    file.unlink()
    file.symlink_to("other.py")
    with pytest.raises(ChangedError):
        found.write()
    assert sorted(os.listdir(tmp_path)) == ["main.py", "other.py"]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    (tmp_path / "main.py").write_text(LISTING)

    def refuse(_descriptor):
        raise OSError(28, "No space left on device")

    found = only_fix(tmp_path)
    monkeypatch.setattr(fix.os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        found.write()
    assert (tmp_path / "main.py").read_text() == LISTING
    assert os.listdir(tmp_path) == ["main.py"]
