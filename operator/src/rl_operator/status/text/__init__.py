"""The words of a status: its conditions and reasons as tables, and sentences that fit."""
