"""`polyc inspect --html`: one JSON document about an operator or a model, and the page that shows it."""
