"""`polyc tune`: which kernels are worth it, and trials of schedules in processes of their own."""
