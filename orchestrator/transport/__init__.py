"""How the host talks to a guest: commands, streams and files, locally or over SSH.
May import `store` and `errors`."""
