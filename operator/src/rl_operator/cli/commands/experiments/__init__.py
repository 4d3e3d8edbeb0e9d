"""Commands about several runs: a comparison, a grid."""
