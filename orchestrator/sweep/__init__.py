"""What `vbstudy sweep` does, from the plan to published runs, and the views of its progress.
May import every room but `cli`."""
