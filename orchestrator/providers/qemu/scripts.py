"""What runs in a guest before anything of ours does: the initial RAM disk's init, the boot script, and
the table of its init. Plain shell, because it must be quick under emulation."""

from __future__ import annotations

MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "virtio-rng")
GUEST_FOLDER = "/vbstudy"
LIBRARIES = "/opt/vbstudy"
LIBRARIES_LABEL = "vbstudy-libs"
PROBED = "vbstudy: the kernel runs"

INITRD_INIT = f"""\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
for module in $(/bin/busybox cat /modules/order); do
  /bin/busybox insmod /modules/$module || echo "vbstudy: module $module does not load"
done
case "$(/bin/busybox cat /proc/cmdline)" in
  *vbstudy.probe*) echo "{PROBED}"; /bin/busybox poweroff -f ;;
esac
wait=0
while [ ! -b /dev/vda ] && [ $wait -lt 100 ]; do /bin/busybox sleep 0.1; wait=$((wait + 1)); done
/bin/busybox mount -t ext4 /dev/vda /root || echo "vbstudy: the root disk cannot be mounted"
/bin/busybox mount --move /dev /root/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /root /bin/busybox init
echo "vbstudy: there is no system on the root disk"
"""

INITTAB = """\
::sysinit:/sbin/vbstudy-boot
::respawn:/usr/sbin/sshd -D -e -o UseDNS=no -o UsePAM=no -o PasswordAuthentication=no -o MaxSessions=100
::ctrlaltdel:/bin/busybox poweroff
"""

# In an image of the user's own, cloud-init runs this, and its init does the rest.
MOUNT_LIBRARIES = (
    f"mkdir -p {LIBRARIES}; mountpoint -q {LIBRARIES} || "
    f"mount -t ext4 -o ro,noload LABEL={LIBRARIES_LABEL} {LIBRARIES}"
)

BOOT = f"""\
#!/bin/busybox sh
mount() {{ /bin/busybox mount "$@"; }}
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
/bin/busybox mkdir -p /dev/pts /dev/shm /run/sshd {GUEST_FOLDER} {LIBRARIES}
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
/bin/busybox ifconfig lo 127.0.0.1 up
/bin/busybox ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
/bin/busybox tar -C / -xf /dev/vdc || echo "vbstudy: the seed disk cannot be read"
mount -t ext4 -o ro,noload /dev/vdb {LIBRARIES} || echo "vbstudy: the library disk cannot be mounted"
echo "vbstudy: booted, $(/bin/busybox nproc) CPUs"
"""
