"""The study's folder: published runs, their index and their recordings. Only this room knows the paths of a
study. May import `files` and `errors` alone."""
