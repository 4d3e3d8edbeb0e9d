"""Request and response bodies, and the values behind them."""
