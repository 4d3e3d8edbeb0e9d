"""What the policy is asked and answers, in text and in tokens: shared by the trainer and the environments."""
