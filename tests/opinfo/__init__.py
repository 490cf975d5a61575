"""torch's own samples of operators (OpInfo) behind `torch.compile(backend="polyc")`: `python -m tests.opinfo`."""
