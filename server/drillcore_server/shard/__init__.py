"""The server process of one shard: prepare, extract, wait for the commit, say how it ended."""
