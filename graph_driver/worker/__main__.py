"""`python -m polyc.graph_driver.worker`: serve jobs from stdin until it closes."""

from polyc.graph_driver.worker.jobs import main

main()
