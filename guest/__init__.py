"""The agent: what runs inside a guest. It needs the standard library, numpy, safetensors
and the framework it trains with; it imports nothing of the orchestrator or the analysis."""
