"""`harness/NAME`: the task of a single-answer environment, worked on by a program in the policy's place."""
