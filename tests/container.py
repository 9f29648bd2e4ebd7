"""The image of `Containerfile`, made and tried without a container engine, in chroots of Debian packages.

`python -m tests.container`, as root. It knows of that format what the file uses; anything else is an error.
A build may be given arguments and secrets: here a step that runs has this machine's settings of pip.
"""

import json
import os
import re
import shlex
import shutil
import string
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SUITES = {"debian:12-slim": "bookworm"}
SETTINGS = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
MOUNTS = "VBSTUDY_CONTAINER_MOUNTS"  # FOLDER[:FOLDER...] that steps find at the same path
ENTER = """
root=$1; shift
for each in proc dev sys; do mount --rbind "/$each" "$root/$each"; done
while read -r -d : each; do
    [ -z "$each" ] || { mkdir -p "$root$each"; mount --rbind "$each" "$root$each"; }
done <<<"$VBSTUDY_CONTAINER_MOUNTS:"
exec chroot "$@"
"""
STUDY = """
cpus = [1, 2]
variants = ["fixed-seed"]

[[workload]]
model = "lenet5"
dataset = "digits"
epochs = 1
"""
SWEPT = ("provision", "sweep --runs 2", "analyze", "destroy")
PROGRAM = """
import torch

torch.nn.Linear(8, 2)(torch.ones(4, 8)).sum().backward()
"""


@dataclass(frozen=True, kw_only=True)
class Image:
    root: Path
    environment: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    )
    arguments: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    folder: str = "/"
    entry: tuple[str, ...] = ()

    def run(self, *command: str, environment: dict[str, str] | None = None) -> None:
        """In the chroot, as its user, with mounts that end with the command. Raises CalledProcessError."""
        # As login does; chroot leaves groups and environment to its caller.
        home = "/root" if self.user == "root" else f"/home/{self.user}"
        variables = {"HOME": home, **self.environment, **(environment or {})}
        subprocess.run(
            [
                *("unshare", "--mount", "--propagation", "private", "bash", "-euc", ENTER, "-", self.root),
                *(f"--userspec={self.user}:{self.user}", self.root),
                *("env", "-i", f"--chdir={self.folder}"),
                *(f"{name}={value}" for name, value in variables.items()),
                *command,
            ],
            check=True,
            env={**os.environ, MOUNTS: os.environ.get(MOUNTS, "")},
            timeout=1200,
        )


def main() -> None:
    disk = os.environ.get("VBSTUDY_CI_DISK", "/var/tmp")  # /tmp may be kept in memory
    with tempfile.TemporaryDirectory(prefix="vbstudy-container-", dir=disk) as name:
        image = build(REPOSITORY / "Containerfile", Path(name))
        assert image.user != "root"
        (image.root / "study/study.toml").write_text(STUDY)
        (image.root / "study/train.py").write_text(PROGRAM)
        for command in ("doctor", *SWEPT, "exact --strict -- python train.py"):
            print(f"== vbstudy {command}", flush=True)
            image.run(*image.entry, *command.split())
        runs = [json.loads(path.read_text()) for path in image.root.glob("study/runs/**/run.json")]
        assert len(runs) == 4, f"{len(runs)} runs, 4 were planned"
        assert (image.root / "study/report/index.html").stat().st_size
        assert not list((image.root / "src").glob("*")), "sources are in the image"
        size = subprocess.run(
            ["du", "-sxm", image.root], check=True, capture_output=True, text=True
        ).stdout.split()[0]
        print(f"{len(runs)} runs by {image.user}; the image has about {size} MB", flush=True)


def build(file: Path, folder: Path) -> Image:
    """The last stage of the file. Raises ValueError and CalledProcessError."""
    stages: dict[str, Image] = {}
    image = Image(root=folder)
    for keyword, rest in instructions(file.read_text()):
        print(f"== {keyword} {rest}", flush=True)
        variables = {**image.arguments, **image.environment}
        match keyword:
            case "FROM":
                base, _, name = rest.partition(" AS ")
                image = _started(base, folder / f"stage-{len(stages)}", stages)
                stages[name] = image
            case "ARG":
                name, _, value = rest.partition("=")
                given = os.environ.get(name, "".join(shlex.split(value)))
                image = replace(image, arguments={**image.arguments, name: given})
            case "ENV":
                name, _, value = rest.partition("=")
                value = string.Template("".join(shlex.split(value))).substitute(variables)
                image = replace(image, environment={**image.environment, name: value})
            case "RUN":
                _configure(image.root)
                pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
                image.run("/bin/sh", "-c", rest, environment={**pip, **image.arguments})
            case "COPY":
                _copy(rest, image, stages)
            case "USER":
                image = replace(image, user=rest)
            case "WORKDIR":
                (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                image = replace(image, folder=rest)
            case "ENTRYPOINT":
                image = replace(image, entry=tuple(json.loads(rest)))
            case _:
                raise ValueError(f"{file.name}: {keyword} is not known here")
        stages = {name: image if each.root == image.root else each for name, each in stages.items()}
    return image


def instructions(text: str) -> Iterator[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip():
            keyword, _, rest = line.partition(" ")
            yield keyword, rest.strip()


def _started(base: str, root: Path, stages: dict[str, Image]) -> Image:
    if base in stages:
        subprocess.run(["cp", "-a", stages[base].root, root], check=True)
        return replace(stages[base], root=root, arguments={})
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", SUITES[base], root], check=True, timeout=1200
    )
    return Image(root=root)


def _configure(root: Path) -> None:
    for name in SETTINGS:
        if Path(name).exists():
            target = root / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(name, target)


def _copy(rest: str, image: Image, stages: dict[str, Image]) -> None:
    words = shlex.split(rest)
    options = dict(word[2:].split("=") for word in words if word.startswith("--"))
    *sources, target = (word for word in words if not word.startswith("--"))
    origin = stages[options.pop("from")].root if "from" in options else REPOSITORY
    owner = options.pop("chown", "root:root")
    if options:
        raise ValueError(f"COPY: --{' --'.join(options)} is not known here")
    for source in (origin / each.lstrip("/") for each in sources):
        into = image.root / target.lstrip("/")
        if target.endswith("/"):
            into /= source.name
        into.parent.mkdir(parents=True, exist_ok=True)
        # The contents of a folder are copied, not the folder.
        subprocess.run(["cp", "-a", "--no-target-directory", source, into], check=True)
        subprocess.run(
            ["chroot", image.root, "chown", "-R", owner, "/" + str(into.relative_to(image.root))], check=True
        )


if __name__ == "__main__":
    main()
