"""`drillcore serve`: an OpenAI-compatible HTTP server of one engine that answers each prompt with a file.

    routes ──► prompts ──► admission ──► extractor ──► engine's thread ──► file sink ──► writer threads
                                              ▲                                              │
                                              └───── the file is durable under its name ◄────┘

The event loop parses, admits and answers. The engine computes in a thread of its own; writer threads write. A response
leaves when its files are complete, and a request whose response cannot leave any more leaves no file.

Source of the interface: vLLM's OpenAI server with its `extract_hidden_states` method and
`ExampleHiddenStatesConnector`, as the client of speculators 0.9 uses it.
"""
