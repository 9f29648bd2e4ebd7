"""What `vbstudy exact` puts on the path of Python processes."""
