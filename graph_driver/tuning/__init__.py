"""`polyc tune`: trials of schedules in processes of their own, and the database of what they found."""
