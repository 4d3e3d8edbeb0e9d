"""An OpenAI-compatible server over the policy, and the ledger of the tokens that it sampled."""
