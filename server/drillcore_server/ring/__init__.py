"""The byte contract between the server and the sidecar: a ring of records in one shared-memory file.

| module | what it owns |
|---|---|
| `layout` | offsets, versions and kinds: what stands where in the file |
| `ring_file` | the file and its mapping: made by the server, attached by the sidecar |
| `header` | the words of the header page: cursors, epochs, heartbeats |
| `descriptor` | the fixed-size description of one record, with its CRC |
| `space` | which bytes of the data area the next record gets |
| `sample_codec` | the end-of-sample record's bytes |
| `doorbell` | the socket beside the ring: cursors and messages |
| `producer`, `consumer` | the verbs of either side |
| `job_file` | what the sidecar must know of the job |

No torch, and nothing of the engine.
"""
