"""Studies on their way to and from others: checked, packed, unpacked, imported. Nothing is unpickled."""
