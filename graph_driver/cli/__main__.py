"""`python -m polyc.graph_driver.cli`."""

import sys

from polyc.graph_driver.cli import main

sys.exit(main())
