"""How long a new process takes to a model's first answer: cold, warm, loaded; and the memory of compiling."""
