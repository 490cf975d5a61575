"""What makes code for a machine and runs it: the protocol, polyc's own back ends, and those that are installed."""
