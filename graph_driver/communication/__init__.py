"""Communication operators of programs that run on several ranks: their definitions, and MPI behind them."""
