"""`python -m graph_driver.cli`."""

import sys

from graph_driver.cli import main

sys.exit(main())
