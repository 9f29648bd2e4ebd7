"""Virtual machines under QEMU: real vCPUs, with or without hardware virtualisation."""
