"""`python -m polyc`: the command line."""

from polyc.graph_driver.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
