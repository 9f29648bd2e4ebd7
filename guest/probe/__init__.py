"""The tasks of a probe: the registry of operations and the engines that compute its entries.
May import `trace` and below."""
