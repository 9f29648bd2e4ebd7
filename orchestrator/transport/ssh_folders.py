"""Commands for the shell of a machine behind SSH: folders are made and removed."""

from __future__ import annotations

import shlex
import uuid
from pathlib import PurePosixPath


def private_folder(folder: str) -> str:
    """The command that makes a folder for this user alone, where others may make some too."""
    quoted, foreign = shlex.quote(folder), shlex.quote(f"{folder}: is not this user's folder; remove it")
    return (
        f"{{ why=$(mkdir -m 700 {quoted} 2>&1) || {_is_own(quoted)} || "
        f"{{ [ ! -e {quoted} -a ! -L {quoted} ] || why={foreign}; "
        "printf '%s\\n' \"$why\" >&2; exit 125; }; }"
    )


def _is_own(quoted: str) -> str:
    return f"[ -d {quoted} -a -O {quoted} -a ! -L {quoted} ]"


def private_removal(folder: str) -> str:
    """The command that removes such a folder, with what earlier ones left; what is there of others, and
    links, stay."""
    quoted, each = shlex.quote(folder), '"$f"'
    own = f'set --; for f in {_renamed(folder)}*; do {_is_own(each)} && set -- "$@" {each}; done'
    remove = _recursive_removal('"$@"')
    return f"if {_is_own(quoted)}; then {renaming(folder)} && ( {own}; {remove} ); fi"


def removal(folder: str) -> str:
    """The command that removes a folder with what a program left in it, read-only folders too. One that
    goes on after its time limit spares what is made in the folder's place; the next removes what it left."""
    return f"{{ {renaming(folder)} && {removal_of_renamed(folder)}; }}"


def renaming(folder: str) -> str:
    quoted = shlex.quote(folder)
    return f"{{ [ ! -e {quoted} -a ! -L {quoted} ] || mv -- {quoted} {_renamed(folder)}{uuid.uuid4().hex}; }}"


def removal_of_renamed(folder: str) -> str:
    return _recursive_removal(f"{_renamed(folder)}*")


def _recursive_removal(folders: str) -> str:
    chmod = f'for f in {folders}; do [ -L "$f" ] || chmod -R u+rwX -- "$f"; done'
    remove = f"rm -rf -- {folders}"
    return f"{{ {remove} 2>/dev/null || {{ {chmod}; {remove}; }}; }}"


def _renamed(folder: str) -> str:
    """What the names begin with, for a shell."""
    path = PurePosixPath(folder)
    return shlex.quote(f"{path.parent}/.gone-{path.name}-")
