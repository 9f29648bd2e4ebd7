"""Which host cores a guest may use: topology, cpusets, locks between processes, leases.
May import `study` and below."""
