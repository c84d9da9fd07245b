"""Query/key norm, rotary embedding and KV cache write."""
