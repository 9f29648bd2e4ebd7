"""Files that data sets come in: where they lie, how they are fetched, how they are read.

Everything read is checked against a known SHA-256 of its *content*, so a recompressed copy is as good
as the publisher's file and a damaged one is refused. Archives are read in memory, never extracted;
nothing is unpickled by anything that could call an arbitrary function."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import os
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from guest.datasets.catalogue import DATASETS, DatasetError, DatasetInfo, SourceFile
from guest.records.codec import sha256_of
from vbstudy import caches

CHUNK_BYTES = 1 << 18

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes done and the bytes in all."""


def present(folder: Path, source: SourceFile) -> list[Path]:
    """The files by which `folder` has the source, and which must be copied to have it elsewhere: all of its
    contents unpacked, with or without their archive's folder, or an archive. Empty where it has it not."""
    unpacked = [
        next((path for path in (folder / name, folder / PurePosixPath(name).name) if _is_file(path)), None)
        for name in source.contents
    ]
    archives = [folder / name for name in (source.name, source.pickled) if name]
    whole = [path for path in unpacked if path]
    return whole if len(whole) == len(unpacked) else [path for path in archives if _is_file(path)][:1]


def _is_file(path: Path) -> bool:
    """False also in a folder that another user keeps to himself."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def read(folder: Path, source: SourceFile) -> list[bytes]:
    """The contents of `source`, in order, each checked. Raises DatasetError naming the file that is damaged
    or cannot be read."""
    where = present(folder, source) or [folder / source.name]
    if where[0].name in (source.name, source.pickled):
        read_archive = _read_packed if where[0].name == source.name else _read_pickled
        with _reading(where[0]):
            found = read_archive(where[0], source)
        where *= len(source.contents)
    else:
        found = []
        for path in where:
            with _reading(path):
                found.append(path.read_bytes())
    for (name, sha256), path, data in zip(source.contents.items(), where, found, strict=True):
        seen = hashlib.sha256(data).hexdigest()
        if seen != sha256:
            for other in DATASETS.values():  # files of different sets may have the same names
                if source not in other.files and any(seen in each.contents.values() for each in other.files):
                    raise DatasetError(
                        f"{path} is of {other.name}: move the files of {other.name} into the subfolder "
                        f"{other.name} of your data folder"
                    )
            raise DatasetError(
                f"{path} is damaged: {name} does not have the published SHA-256 {sha256[:16]}…; "
                "delete the file and get it again"
            )
    return found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises DatasetError for what goes wrong meanwhile. A file that may not be read is not damaged."""
    import tarfile

    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise DatasetError(f"{path} is damaged ({error}); delete it and get it again") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror or error})") from error


def _read_packed(path: Path, source: SourceFile) -> list[bytes]:
    if not source.name.endswith(".tar.gz"):
        return [gzip.decompress(path.read_bytes())]
    members = {name: file.read() for name, file in _members(path)}
    try:
        return [members[name] for name in source.contents]
    except KeyError as error:
        raise DatasetError(f"{path} is damaged: it has no member {error}; get it again") from error


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and open files of a tar archive, in one pass, nothing written to disk."""
    import tarfile

    with tarfile.open(path, mode="r|*") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name.removeprefix("./"), file


def read_idx(data: bytes, what: str) -> tuple[tuple[int, ...], bytes]:
    """An IDX file of unsigned bytes (LeCun, Cortes, Burges: the MNIST database): shape and raw bytes."""
    dimensions = data[3] if len(data) > 3 else 0
    start = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4))
    size = 1
    for length in shape:
        size *= length
    if data[:3] != b"\0\0\x08" or len(data) != start + size:
        raise DatasetError(f"{what} is not an IDX file of unsigned bytes")
    return shape, data[start:]


# CIFAR as Python pickles. Only the official archives, known by their SHA-256, are unpickled at all. Their
# pickles build a dictionary of byte strings, lists and one numpy array; the three names they refer to are
# answered by inert stand-ins, every other name is refused. What comes out is put into the layout of the
# binary archives, so that one set of published hashes covers both.


class _Array:
    """Stands in for numpy.ndarray: keeps the state it is given, computes nothing."""

    data = b""

    def __setstate__(self, state: Any) -> None:
        match state:
            case (1, (int(), int()), _Type(), False, bytes(data)):
                self.data = data
            case _:
                raise pickle.UnpicklingError("not a plain array of bytes")


class _Type:
    """Stands in for numpy.dtype: unsigned bytes only."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise pickle.UnpicklingError(f"an array of {code!r}")

    def __setstate__(self, state: object) -> None:
        """A dtype's state (byte order, alignment) says nothing about unsigned bytes."""


def _reconstruct(*_: object) -> _Array:
    return _Array()


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "numpy.core.multiarray", "_reconstruct":
                return _reconstruct
            case "numpy", "ndarray":
                return _Array
            case "numpy", "dtype":
                return _Type
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file")


def _read_pickled(path: Path, source: SourceFile) -> list[bytes]:
    """The batches of `cifar-10-python.tar.gz` or `cifar-100-python.tar.gz`, as the binary archives
    have them: `data_batch_1` is `data_batch_1.bin`, `train` is `train.bin`."""
    if sha256_of(path) != source.pickled_sha256:
        raise DatasetError(
            f"{path} is not the official archive, so nothing in it was unpickled; delete it "
            f"(`vbstudy provision` then downloads {source.name}), or get it again"
        )
    batches = {PurePosixPath(name).name: member.read() for name, member in _members(path)}
    return [_binary(_unpickle(batches[PurePosixPath(name).stem], path)) for name in source.contents]


def _unpickle(batch: bytes, path: Path) -> dict[bytes, Any]:
    try:
        return cast(dict[bytes, Any], _BatchUnpickler(io.BytesIO(batch), encoding="bytes").load())
    except pickle.UnpicklingError as error:
        raise DatasetError(f"{path} is refused: {error}") from error


def _binary(batch: dict[bytes, Any]) -> bytes:
    """One record a sample: the label (CIFAR-100: coarse, fine), then 3,072 pixels."""
    pixels = batch[b"data"].data
    if b"labels" in batch:
        labels = [bytes([label]) for label in batch[b"labels"]]
    else:
        pairs = zip(batch[b"coarse_labels"], batch[b"fine_labels"], strict=True)
        labels = [bytes(pair) for pair in pairs]
    return b"".join(label + pixels[i * 3072 : (i + 1) * 3072] for i, label in enumerate(labels))


def fetch(source: SourceFile, folder: Path, progress: Progress | None = None) -> Path:
    """Downloads one file into `folder`: to a temporary name, no longer than published, SHA-256 checked,
    then renamed. Raises DatasetError when no address delivers it."""
    from http.client import HTTPException

    failures = []
    for url in source.urls:
        part = folder / f".{source.name}.{os.getpid()}.part"
        try:
            with ExitStack() as stack:
                stack.enter_context(_cleared(folder, f".{source.name}.[0-9]*.part"))
                stack.callback(part.unlink, missing_ok=True)
                _stream(url, source, part, progress)
                return part.rename(folder / source.name)
        except (OSError, ValueError, HTTPException) as error:
            failures.append(f"  {url}: {error}")
    raise DatasetError("\n".join([f"{source.name} could not be downloaded:", *failures]))


@contextmanager
def _cleared(folder: Path, parts: str) -> Iterator[None]:
    """Removes what killed downloads left, unless others are under way: each shares a lock on the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # also of file systems without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob(parts):
                left.unlink()
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _stream(url: str, source: SourceFile, part: Path, progress: Progress | None) -> None:
    from guest.datasets import download

    if not url.startswith(("http://", "https://")):
        raise DatasetError("only http and https are fetched")
    digest, done = hashlib.sha256(), 0
    with part.open("wb") as file:
        with download.opened(url) as (reply, moved):
            while chunk := reply.read1(CHUNK_BYTES):
                moved(len(chunk))
                done += len(chunk)
                if done > source.size_bytes:
                    raise DatasetError(f"more than the published {source.size_bytes} bytes arrive")
                digest.update(chunk)
                file.write(chunk)
                if progress is not None:
                    progress(source.name, done, source.size_bytes)
        file.flush()
        os.fsync(file.fileno())
    if done != source.size_bytes:
        raise DatasetError(f"{done} of {source.size_bytes} bytes arrived")
    if digest.hexdigest() != source.sha256:
        raise DatasetError(f"SHA-256 {digest.hexdigest()[:16]}… instead of {source.sha256[:16]}…")


def candidates(folders: Sequence[str | Path], wanted: DatasetInfo) -> list[Path]:
    """Where a data set may lie, best first: the given folders, $VBSTUDY_DATA, the user's cache, Debian's
    packages; in each its subfolders and then the folder itself, which may hold files of another set."""
    roots = [Path(folder).expanduser() for folder in folders]
    if os.environ.get("VBSTUDY_DATA"):
        roots += [Path(part) for part in os.environ["VBSTUDY_DATA"].split(os.pathsep) if part]
    roots += [default_folder(), Path("/usr/share/datasets")]
    return [root / sub for root in roots for sub in (wanted.name, *wanted.subfolders, "")]


def default_folder() -> Path:
    """Where downloads go when no folder is given."""
    return caches.folder() / "data"
