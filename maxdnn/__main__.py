"""`python -m maxdnn` is the console command."""

import sys

from .cli import main

sys.exit(main())
