"""Models as functional programs: functions, let, tuples, data types, if; recursion becomes loops."""
