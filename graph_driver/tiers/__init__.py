"""A model that runs before all of its code is made: a first program, and a process that makes the full one."""
