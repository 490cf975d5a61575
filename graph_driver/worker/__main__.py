"""`python -m polyc.graph_driver.worker`: fork compilers as the socket on stdin says, until it closes."""

from polyc.poly.collection import seldom_collected

with seldom_collected():
    from polyc.graph_driver.worker.forking import main  # modules are many objects, too

    main()
