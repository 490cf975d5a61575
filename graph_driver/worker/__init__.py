"""One Scop to machine code: jobs, the processes that do them, tuned schedules, and what the disk keeps."""
