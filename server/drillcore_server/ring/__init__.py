"""The byte contract between the server and the sidecar: a ring of records in one shared-memory file.

| module | what it owns |
|---|---|
| `layout` | offsets, versions and kinds: what stands where in the file |
| `ring_file` | the file and its mapping: made by the server, attached by the sidecar |
| `header` | the words of the header page: cursors, epochs, heartbeats |
| `descriptor` | the fixed-size description of one record, with its CRC |
| `space` | which bytes of the data area the next record gets |
| `sample_codec` | the end-of-sample record's bytes |
| `doorbell`, `connection` | the socket beside the ring: cursors and messages, and how the two sides meet |
| `record_writer` | the server's records in memory: reserve, seal, append, take back |
| `producer` | the server's side: `record_writer` and the doorbell together |
| `consumer` | the sidecar's side: get, release |
| `job_file` | what the sidecar must know of the job |

No torch, and nothing of the engine.
"""
