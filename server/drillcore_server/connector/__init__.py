"""The KV connector: moves hidden states out of the paged cache."""
