"""How models write tool calls: parsed from their answers, and written as they would write them."""
