"""The extraction server: engine, connector, ring, sidecar, and the `drillcore` command."""
