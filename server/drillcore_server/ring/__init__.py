"""The byte contract between the server and the sidecar: a ring in shared memory. No torch."""
