"""The study file: its tables, defaults and checks, the plan of runs that it means, and snapshots of user
projects. May import `store`, `inventory` and `errors`."""
