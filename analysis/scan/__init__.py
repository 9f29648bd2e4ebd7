"""What published projects state and do: their requirements, and what in their code keeps runs from repeating.

Pure functions from text to findings, but for `files` (reads), `run` (many projects in parallel) and `kept`.
`rules` lists what is looked for; nothing here imports a framework, or the code that is looked at."""
