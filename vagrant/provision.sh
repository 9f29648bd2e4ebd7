#!/bin/sh
# Makes a machine a guest of a study, as root: `provision.sh SEED USER`. What is in the folder SEED decides:
#   requirements.txt   pinned packages, installed into /opt/vbstudy; wheels/ beside it spares the network
#   ssh_host_ed25519_key, its .pub, authorized_keys   the study's own keys; no password opens it any more
# Does nothing a second time.
set -eu
seed=$1 user=$2
target=/opt/vbstudy

# Copied last, so it is there only when all that it lists is.
if [ -s "$seed/requirements.txt" ] && ! cmp -s "$seed/requirements.txt" "$target/requirements.txt"; then
    if ! python3 -c 'import ensurepip' 2> /dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q && apt-get install -q -y --no-install-recommends python3-venv
    fi
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || { echo "provision.sh: this box has $(python3 --version), 3.11 is needed" >&2; exit 3; }
    rm -rf "$target"
    python3 -m venv "$target"
    set -- --quiet --no-input --no-cache-dir --disable-pip-version-check --only-binary=:all:
    [ ! -d "$seed/wheels" ] || set -- "$@" --no-index --find-links "$seed/wheels"
    "$target/bin/python" -m pip install "$@" -r "$seed/requirements.txt"
    cp "$seed/requirements.txt" "$target/requirements.txt"
fi

install -d -o "$user" -g "$user" /var/lib/vbstudy

if [ -f "$seed/ssh_host_ed25519_key" ]; then
    install -m 600 "$seed/ssh_host_ed25519_key" /etc/ssh/ssh_host_ed25519_key
    install -m 644 "$seed/ssh_host_ed25519_key.pub" /etc/ssh/ssh_host_ed25519_key.pub
    home=$(getent passwd "$user" | cut -d: -f6)
    install -d -m 700 -o "$user" -g "$user" "$home/.ssh"
    install -m 600 -o "$user" -g "$user" "$seed/authorized_keys" "$home/.ssh/authorized_keys"
    rm -rf "$seed"
    # Everybody knows a public box's password. The first file that has a setting counts.
    install -d /etc/ssh/sshd_config.d
    printf '%sAuthentication no\n' Password KbdInteractive > /etc/ssh/sshd_config.d/00-vbstudy.conf
    kill -HUP "$(cat /run/sshd.pid)" # shows the new key from now on; this connection stays
fi
sync # a guest is stopped by switching it off
