"""The hybrid-script front end: annotations, parser, specialisation, plain-Python execution, operator library."""
