"""Read what drillcore wrote: open an output, read samples, verify. numpy and safetensors, no torch."""
