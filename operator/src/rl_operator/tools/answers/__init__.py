"""The tools' answers: concise and without secrets."""
