"""What a file does with a model as a whole: keeps its weights, only uses it, goes on from a saved one."""
