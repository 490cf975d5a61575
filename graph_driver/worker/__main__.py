"""`python -m polyc.graph_driver.worker`: serve jobs from stdin until it closes."""

from polyc.poly.collection import seldom_collected

with seldom_collected():
    from polyc.graph_driver.worker.jobs import main  # modules are many objects, too

    main()
