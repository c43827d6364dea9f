"""`python -m maxdnn` is the console command."""

import sys

from .cli import main

if __name__ == "__main__":  # processes that it starts import this file, too
    sys.exit(main())
