"""Why a schedule tree is refused, for people: the violation, two instances, a script that shows it."""
