# Stages that need more than python3 and make: an sshd, and QEMU. Sourced by .ci/run.

# The SSH connection and whole studies over it, against a real sshd on the loopback.
stage_ssh() {
    packages openssh-server openssh-client
    make install
    .venv/bin/python -m pytest -m ssh tests/orchestrator/test_ssh.py tests/providers
}

# Virtual machines: builds the image when it is not cached (about three minutes), boots, trains, kills.
stage_qemu() {
    packages qemu-system-x86 qemu-utils mmdebstrap e2fsprogs openssh-client
    make install
    .venv/bin/python -m pytest -m qemu tests/qemu tests/providers/test_contract.py
}
