"""Figures as people read them, wherever they are shown. Pure."""


def duration(seconds: float) -> str:
    """`38s`, `4m10s`, `3h05m`, `2d4h`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def money_spent(amount: float, currency: str, budget: float | None) -> str:
    """`1.35 USD`, `1.35 of 10.00 USD`; four decimals below a cent."""
    spent = f"{amount:,.2f}" if amount >= 0.01 or not amount else f"{amount:.4f}"
    of = f" of {budget:,.2f}" if budget is not None else ""
    return f"{spent}{of} {currency}"
