"""The texts of a status: its conditions and reasons as tables, and sentences of bounded length."""
