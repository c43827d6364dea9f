"""The subcommands of `maxdnn`, one module each; a new file here is a new subcommand named after it.

A module offers `HELP` (one line), `configure(parser)` (adds its arguments) and `run(args) -> int` (the exit status).
It imports only the standard library at its top, the rest inside `run`, so that `maxdnn --help` starts at once.
"""
