"""Which data sets there are, what they look like, and what their published files must hash to."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["image", "text", "story"]


class DatasetError(ValueError):
    """A data set that is unknown, not there, or damaged. The text says which, where, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file as its publisher offers it: a gzip of one content file or a tar.gz of several. `contents` has
    their paths inside the archive and the SHA-256 of each once decompressed. `urls` are tried in order.
    `pickled` names a second official archive that holds the same content as Python pickles; it is read, but
    never downloaded."""

    name: str
    urls: tuple[str, ...]
    size_bytes: int
    sha256: str
    contents: dict[str, str]
    pickled: str = ""
    pickled_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetInfo:
    """One data set. `shape` is one sample's: (height, width, channels) of an image, (tokens,) of a text,
    (sentences + 1, words) of a story, whose last row is the question. `vocabulary` counts the token ids,
    padding included (0 for images). `mean` and `std` are the training pixels', per channel, in 0 .. 1.
    `samples` are how many there are to train and to test with, where it was counted. `subfolders` are
    where other libraries put its files; vbstudy's own is of its name."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    classes: int
    vocabulary: int = 0
    embedded: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    files: tuple[SourceFile, ...] = ()
    subfolders: tuple[str, ...] = ()
    samples: tuple[int, int] | None = None


_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def _idx(*urls: str, sizes: tuple[int, ...], packed: str, contents: str) -> tuple[SourceFile, ...]:
    """MNIST's four files. `packed` has the hashes of the compressed ones, `contents` of what is in them."""
    return tuple(
        SourceFile(
            name=f"{name}.gz",
            urls=tuple(f"{url}/{name}.gz" for url in urls),
            size_bytes=size,
            sha256=sha256,
            contents={name: content},
        )
        for name, size, sha256, content in zip(
            _IDX_FILES, sizes, packed.split(), contents.split(), strict=True
        )
    )


def _cifar(classes: int, size_bytes: int, sha256: str, pickled_sha256: str, **contents: str) -> SourceFile:
    """The binary archive, and the one of pickles. `contents` are the hashes of the parts by name."""
    name = f"cifar-{classes}-binary.tar.gz"
    folder = "cifar-10-batches-bin" if classes == 10 else "cifar-100-binary"
    return SourceFile(
        name=name,
        urls=(f"https://www.cs.toronto.edu/~kriz/{name}", f"https://cave.cs.toronto.edu/kriz/{name}"),
        size_bytes=size_bytes,
        sha256=sha256,
        contents={f"{folder}/{part}.bin": content for part, content in contents.items()},
        pickled=f"cifar-{classes}-python.tar.gz",
        pickled_sha256=pickled_sha256,
    )


# Hashes of the compressed files: the url_checksums folder of TensorFlow Datasets. Fashion-MNIST's
# contents were hashed from Debian's dataset-fashion-mnist, the same gzip streams without their header.
DATASETS: dict[str, DatasetInfo] = {
    # 1,797 handwritten digits of UCI, 8x8 scaled to 28x28.
    # Alpaydin and Kaynak 1998, https://doi.org/10.24432/C50P49, CC BY 4.0
    "digits": DatasetInfo(
        name="digits",
        kind="image",
        shape=(28, 28, 1),
        classes=10,
        embedded=True,
        mean=(0.2237,),
        std=(0.3492,),
        samples=(1262, 268),
    ),
    # MNIST: 70,000 handwritten digits, 28x28. LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist/
    "mnist": DatasetInfo(
        name="mnist",
        kind="image",
        shape=(28, 28, 1),
        classes=10,
        mean=(0.1307,),
        std=(0.3081,),
        files=_idx(
            "https://storage.googleapis.com/cvdf-datasets/mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            sizes=(9912422, 28881, 1648877, 4542),
            packed="""
                440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
                3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
                8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
                f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6""",
            contents="""
                ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
                65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
                0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
                ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2""",
        ),
        subfolders=("MNIST/raw",),  # torchvision's
    ),
    # Fashion-MNIST: 70,000 articles of clothing, 28x28.
    # Xiao, Rasul and Vollgraf 2017, https://github.com/zalandoresearch/fashion-mnist, MIT
    "fashion-mnist": DatasetInfo(
        name="fashion-mnist",
        kind="image",
        shape=(28, 28, 1),
        classes=10,
        mean=(0.2860,),
        std=(0.3530,),
        files=_idx(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            sizes=(26421880, 29515, 4422102, 5148),
            packed="""
                3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
                a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
                346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
                67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5""",
            contents="""
                c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
                bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
                5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
                0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34""",
        ),
        subfolders=("FashionMNIST/raw",),
        samples=(53962, 10000),
    ),
    # CIFAR-10: 60,000 photographs of 10 kinds, 32x32.
    # Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html
    "cifar10": DatasetInfo(
        name="cifar10",
        kind="image",
        shape=(32, 32, 3),
        classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        files=(
            _cifar(
                10,
                170052171,
                sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                pickled_sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                data_batch_1="cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                data_batch_2="a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                data_batch_3="bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                data_batch_4="014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                data_batch_5="755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                test_batch="8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
        ),
    ),
    # CIFAR-100: 60,000 photographs of 100 kinds, 32x32.
    # Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html
    "cifar100": DatasetInfo(
        name="cifar100",
        kind="image",
        shape=(32, 32, 3),
        classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        files=(
            _cifar(
                100,
                168513733,
                sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                pickled_sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
                train="f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                test="d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            ),
        ),
    ),
    # 6,000 generated headlines, clickbait or news: guest/datasets/data/TEXTS.txt
    "headlines": DatasetInfo(
        name="headlines",
        kind="text",
        shape=(18,),
        classes=2,
        vocabulary=179,
        embedded=True,
        samples=(4201, 926),
    ),
    # 6,000 generated stories with a question, after bAbI task 1: guest/datasets/data/TEXTS.txt
    "stories": DatasetInfo(
        name="stories",
        kind="story",
        shape=(11, 6),
        classes=6,
        vocabulary=20,
        embedded=True,
        samples=(4248, 877),
    ),
}


def info(name: str) -> DatasetInfo:
    """The data set of that name. Raises DatasetError with the nearest spelling."""
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(DATASETS)}"
    raise DatasetError(f"unknown data set {name!r}: {hint}")
