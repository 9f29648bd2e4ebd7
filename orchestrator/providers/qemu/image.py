"""The disks that all guests share: a root file system (of Debian packages with its kernel, or an image
of the user's own) and the Python libraries. Built once, without mounting anything; named by the hash of
what went into them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from analysis.results.temporary import clear, temporary
from guest.records.run import Framework
from orchestrator.agent.frameworks import DISTRIBUTIONS
from orchestrator.errors import GuestError, PrerequisiteError
from orchestrator.files import locked, open_lock, publish_folder
from orchestrator.providers import processes
from orchestrator.providers.qemu import scripts
from orchestrator.text import Say
from vbstudy import caches

IMAGE_VERSION = 2
SUITE = "bookworm"
GUEST_PYTHON = "3.11"  # that of the suite
PACKAGES = ("busybox-static", "linux-image-cloud-amd64", "openssh-server", "procps", "python3")
UNUSED = ("doc", "info", "locale", "man")
NOT_IN_IMAGE = (
    "proc", "sys", "dev", "boot", "lib/modules", "usr/lib/modules", "var/lib/apt/lists", "var/cache/apt",
)  # fmt: skip
WORK_PREFIX = "vbstudy-image-"
ROOT_SIZE = "4G"  # sparse
BUILD_TIMEOUT_S = 1800
MIN_IMAGE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Read-only files that guests boot from. `boot` is a kernel and its initial RAM disk, or None for a
    root disk with a boot loader of its own; `libraries` is None where Python in the image has its own."""

    boot: tuple[Path, Path] | None
    root: Path
    root_format: str
    libraries: Path | None
    identity: str


def cache() -> Path:
    return caches.folder() / "images"


def prepare(frameworks: Sequence[Framework], notify: Say) -> Image:
    """The image for guests that train with these frameworks; built where it is not there yet."""
    kernel, initrd = probe_kernel(notify)
    root, libraries = kernel.with_name("root.img"), _libraries(GUEST_PYTHON, frameworks, notify)
    return Image(
        boot=(kernel, initrd),
        root=root,
        root_format="raw",
        libraries=libraries,
        identity=_identity(root, libraries),
    )


def probe_kernel(notify: Say) -> tuple[Path, Path]:
    """A kernel, and a RAM disk with which it says that it runs and ends (see scripts.INITRD_INIT)."""
    inputs = {
        "version": IMAGE_VERSION,
        "suite": SUITE,
        "packages": PACKAGES,
        "scripts": [scripts.INITRD_INIT, scripts.INITTAB, scripts.BOOT, scripts.MODULES],
    }
    system = _cached("system", inputs, _build_system, notify)
    return system / "vmlinuz", system / "initrd.img"


def prepare_own(
    root: Path, python_version: str | None, frameworks: Sequence[Framework], notify: Say
) -> Image:
    """A disk image of the user's own, which boots by itself and runs cloud-init. Its Python gets the
    libraries of its version, or none where `python_version` is None. Raises PrerequisiteError for what
    is not a disk image."""
    if not root.is_file():
        raise PrerequisiteError(f"provider.image = '{root}': there is no such file")
    info = _run(["qemu-img", "info", "--output=json", str(root)], f"the image {root}")
    found = json.loads(info)
    if found["virtual-size"] < MIN_IMAGE_BYTES:
        raise PrerequisiteError(f"provider.image = '{root}': is not the image of a disk with a system")
    libraries = _libraries(python_version, frameworks, notify) if python_version else None
    return Image(
        boot=None,
        root=root,
        root_format=found["format"],
        libraries=libraries,
        identity=_identity(root, *([libraries] if libraries else ())),
    )


def _identity(*disks: Path) -> str:
    """Of these bytes: the same inputs give another file system each time that they are built."""
    return " ".join(f"{disk} {disk.stat().st_size} {disk.stat().st_mtime_ns}" for disk in disks)


def _libraries(python_version: str, frameworks: Sequence[Framework], notify: Say) -> Path:
    pins = library_pins(frameworks)
    inputs = {"version": IMAGE_VERSION, "python": python_version, "pins": pins}
    folder = _cached("libraries", inputs, lambda into: _build_libraries(into, python_version, pins), notify)
    return folder / "libraries.img"


def library_pins(frameworks: Sequence[Framework]) -> list[str]:
    """The versions that this program runs with itself, so that host and guests compute the same."""
    names = ["numpy", "safetensors"]
    for framework in sorted(frameworks):
        names += DISTRIBUTIONS[framework]
    pins = []
    for name in sorted(names):
        try:
            pins.append(f"{name}=={metadata.version(name).partition('+')[0]}")
        except metadata.PackageNotFoundError:
            raise PrerequisiteError(
                f"{name} is not installed here, so the guests' version is not known: pip install {name}"
            ) from None
    return pins


def no_release(output: str, python: str) -> str:
    """What to install here where pip, whose output this is, finds other versions of a package for that Python
    than this one; nothing where it finds none, as without a network."""
    asked = re.search(r"requirement (\S+)==(\S+) \(from versions: ([^)]+)\)", output)
    versions = asked[3].split(", ") if asked else []
    final = [v for each in versions if (v := each.partition("+")[0]).replace(".", "").isdigit()]
    if not asked or not final:
        return ""
    known = f"{asked[1]} {asked[2]}, which is installed here, has no release for {python}"
    return f"{known}: pip install {asked[1]}=={final[-1]}"


def _cached(kind: str, inputs: dict[str, object], build: Callable[[Path], None], notify: Say) -> Path:
    """A folder in the cache, made whole or not at all. Two studies never build the same one twice."""
    name = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
    target = cache() / f"{kind}-{name}"
    _clear_killed()
    if target.is_dir():
        return target
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / f".{kind}-{name}.lock"):
        if target.is_dir():
            return target
        part = Path(tempfile.mkdtemp(prefix=f".{kind}-{name}.", suffix=".part", dir=cache()))
        notify(f"building the {kind} image in {target}: once, a minute or two")
        began = time.monotonic()
        try:
            build(part)
            (part / "inputs.json").write_text(json.dumps(inputs, indent=1) + "\n")
            names = [path.name for path in part.iterdir()]
            for name in names:
                (part / name).chmod(0o444)
            part.chmod(0o755)
            publish_folder(part, target, names)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        notify(f"built the {kind} image in {time.monotonic() - began:.0f} s")
    return target


def _clear_killed() -> None:
    """Removes what killed builds left, of other inputs too. Who builds holds the lock of that name. An
    mmdebstrap that goes on is not killed, for it has /proc and /sys mounted in a folder of its own: it fails
    at its hook, then unmounts and removes that."""
    clear(Path(tempfile.gettempdir()), WORK_PREFIX)
    for left in cache().glob(".*.part"):
        lock = cache() / f"{left.name.rsplit('.', 2)[0]}.lock"
        with contextlib.suppress(OSError), os.fdopen(open_lock(lock)) as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)  # its pip may still write


# ---- the system ------------------------------------------------------------------------------


def _build_system(into: Path) -> None:
    # Not in `into`: without root, mmdebstrap works as users that cannot enter a home.
    with temporary(Path(tempfile.gettempdir()) / "work", WORK_PREFIX) as work:
        work.parent.chmod(0o755)
        work.mkdir()
        work.chmod(0o755)
        (work / "inittab").write_text(scripts.INITTAB)
        (work / "vbstudy-boot").write_text(scripts.BOOT)
        (work / "vbstudy-boot").chmod(0o755)
        out = work / "out"
        out.mkdir()
        out.chmod(0o777)  # without root, hooks run as another user of a namespace
        # The hook runs where the files' owners are right, root or not; "$1" is the new system, with
        # /proc and others mounted, which is why it is copied before it is made an image of.
        left_out = " ".join(f'--exclude="./{folder}/*"' for folder in NOT_IN_IMAGE)
        to, given = shlex.quote(str(out)), shlex.quote(str(work))
        finish = (
            f'set -e; cp -L "$1/vmlinuz" {to}/vmlinuz; tar -C "$1" -cf {to}/modules.tar lib/modules; '
            f'cp "$1/bin/busybox" {to}/busybox; '
            f'cp {given}/inittab "$1/etc/inittab"; cp {given}/vbstudy-boot "$1/sbin/vbstudy-boot"; '
            'rm -f "$1"/etc/ssh/ssh_host_*; mkdir "$1.tree"; '
            f'tar -C "$1" --one-file-system {left_out} -cf - . | tar -C "$1.tree" -xpf -; '
            f'mke2fs -q -t ext4 -d "$1.tree" {to}/root.img {ROOT_SIZE}; rm -rf "$1.tree"'
        )
        command = [
            "mmdebstrap",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            '--aptopt=APT::Install-Recommends "false"',
            *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in UNUSED),
            f"--customize-hook={finish}",
            "--format=null",
            SUITE,
        ]
        _run(command, "the system image")
        _write_initrd(into / "initrd.img", out / "busybox", out / "modules.tar", work)
        shutil.move(out / "vmlinuz", into / "vmlinuz")
        _run(["cp", "--sparse=always", str(out / "root.img"), str(into / "root.img")], "the system image")


def _write_initrd(path: Path, busybox: Path, modules: Path, work: Path) -> None:
    tree = work / "modules"
    with tarfile.open(modules) as archive:
        archive.extractall(tree, filter="data")
    (folder,) = (tree / "lib/modules").iterdir()
    order = module_order((folder / "modules.dep").read_text(), scripts.MODULES)
    entries = [
        ("bin", 0o040755, b""),
        ("bin/busybox", 0o100755, busybox.read_bytes()),
        ("dev", 0o040755, b""),
        ("proc", 0o040755, b""),
        ("root", 0o040755, b""),
        ("modules", 0o040755, b""),
        ("init", 0o100755, scripts.INITRD_INIT.encode()),
        ("modules/order", 0o100644, "".join(f"{Path(m).name}\n" for m in order).encode()),
        *((f"modules/{Path(m).name}", 0o100644, (folder / m).read_bytes()) for m in order),
    ]
    path.write_bytes(b"".join(_cpio(*entry) for entry in entries) + _cpio("TRAILER!!!", 0, b""))


def module_order(dependencies: str, wanted: Sequence[str]) -> list[str]:
    """Files of kernel modules, each after those it needs, from the text of `modules.dep`."""
    needs: dict[str, list[str]] = {}
    for line in dependencies.splitlines():
        file, _, others = line.partition(":")
        needs[file] = others.split()
    files = {Path(file).name.split(".")[0].replace("-", "_"): file for file in needs}
    order: list[str] = []

    def add(file: str) -> None:
        for other in needs[file]:
            add(other)
        if file not in order:
            order.append(file)

    for name in wanted:
        if name.replace("-", "_") in files:  # else it is built in
            add(files[name.replace("-", "_")])
    return order


def _cpio(name: str, mode: int, data: bytes) -> bytes:
    """One entry of an initial RAM disk ("newc": a header in hexadecimal, padded to 4 bytes)."""
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


# ---- the libraries ---------------------------------------------------------------------------


def _build_libraries(into: Path, python_version: str, pins: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=into) as work:
        tree = Path(work) / "tree"
        command = [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--only-binary=:all:",
            "--python-version", python_version, "--target", str(tree), *pins,
        ]  # fmt: skip
        try:
            _run(command, "the libraries", TMPDIR=work)  # where pip unpacks them
        except GuestError as error:
            if why := no_release(error.evidence, f"the guests' Python {python_version}"):
                raise PrerequisiteError(why) from None
            raise
        shutil.rmtree(tree / "torch" / "include", ignore_errors=True)
        if sys.version_info[:2] != tuple(map(int, python_version.split("."))):
            for folder in list(tree.rglob("__pycache__")):
                shutil.rmtree(folder)  # another Python's
        size = sum(p.lstat().st_size + 4096 for p in tree.rglob("*"))
        _run(
            [
                "mke2fs", "-q", "-t", "ext4", "-L", scripts.LIBRARIES_LABEL, "-m", "0",
                "-O", "^has_journal", "-E", "root_owner=0:0", "-d", str(tree),
                str(into / "libraries.img"), f"{int(size * 1.1) // 1024 + 65536}k",
            ],
            "the library disk",
        )  # fmt: skip


def _run(command: list[str], what: str, **changes: str) -> str:
    """What the command prints, in an environment with these changes."""
    failure = f"{what} cannot be built: {command[0]}"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    env = {**os.environ, "PATH": path, "PYTHONPATH": "", **changes}
    return processes.output(command, failure, BUILD_TIMEOUT_S, env, PrerequisiteError)
