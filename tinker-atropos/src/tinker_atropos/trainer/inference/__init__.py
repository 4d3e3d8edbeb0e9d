"""An OpenAI-compatible server for the policy, and the ledger of the tokens that it sampled."""
