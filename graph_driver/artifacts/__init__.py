"""Compiled code on disk: directories of models, operators as files, stand-alone C."""
