"""The choices of layouts that a user has."""

LAYOUTS = ("auto", "as_given", "channels_last", "blocked")
