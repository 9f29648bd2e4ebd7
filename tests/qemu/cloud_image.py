"""A cloud image as vendors publish them (boot loader, systemd, cloud-init, sshd; no key, no host key),
made from Debian packages, for tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PACKAGES = (
    "cloud-init", "init", "initramfs-tools", "iproute2", "linux-image-cloud-amd64", "openssh-server",
    "python3", "udev",
)  # fmt: skip
GRUB = "/usr/lib/grub/i386-pc"
FIRST_SECTOR = 2048
SIZE_MIB = 2000
MENU = """\
linux (hd0,msdos1)/vmlinuz root=/dev/vda1 rw console=ttyS0 quiet random.trust_cpu=on
initrd (hd0,msdos1)/initrd.img
boot
"""


def build(image: Path, work: Path) -> None:
    """Writes a qcow2 file. Needs root, mmdebstrap, e2fsprogs, grub-pc-bin and qemu-utils."""
    root, part, disk = work / "root", work / "part.img", work / "disk.img"
    run(
        "mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        '--customize-hook=chroot "$1" systemctl enable systemd-networkd ssh',
        '--customize-hook=rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname',
        '--customize-hook=truncate -s 0 "$1"/etc/machine-id',
        "bookworm", str(root),
    )  # fmt: skip
    run("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(part), f"{SIZE_MIB}M")
    (work / "menu.cfg").write_text(MENU)
    run(
        "grub-mkimage", "-O", "i386-pc", "-p", "(hd0,msdos1)/boot/grub", "-c", str(work / "menu.cfg"),
        "-o", str(work / "core.img"), "biosdisk", "part_msdos", "ext2", "linux", "boot",
    )  # fmt: skip
    with disk.open("wb") as file:
        file.truncate(FIRST_SECTOR * 512 + part.stat().st_size)
        file.write(Path(GRUB, "boot.img").read_bytes()[:440])  # it loads what follows it
        file.seek(512)
        file.write((work / "core.img").read_bytes())
        assert file.tell() < FIRST_SECTOR * 512
    table = f"label: dos\nstart={FIRST_SECTOR}, type=83, bootable\n"
    run("sfdisk", "-q", str(disk), given=table)
    run("dd", f"if={part}", f"of={disk}", "bs=1M", f"seek={FIRST_SECTOR // 2048}", "conv=notrunc,sparse")
    run("qemu-img", "convert", "-O", "qcow2", str(disk), str(image))


def run(*command: str, given: str = "") -> None:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr[-2000:]}"
