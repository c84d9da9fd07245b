"""The engine: scheduler, KV cache manager, input batch, model runner, hidden-state drafter."""
