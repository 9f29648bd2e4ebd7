"""The training loop, its metrics, and robustness of trained models.
May import `workloads`, `machine` and below."""
