"""The bodies that come and go, and the values behind them."""
