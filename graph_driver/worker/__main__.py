"""`python -m polyc.graph_driver.worker`: fork compilers as the socket on stdin says, until it closes."""

from polyc.graph_driver.worker.child import say_why_not, socket_on_stdin
from polyc.poly.collection import seldom_collected

control = socket_on_stdin()
with seldom_collected():  # modules are many objects, too
    try:
        from polyc.graph_driver.worker.forking import preload, run

        preload()
    except Exception as error:
        say_why_not(control, error)
    run(control)
