"""The report: one page, its parts, and the files beside it. May import `figures` and below."""
