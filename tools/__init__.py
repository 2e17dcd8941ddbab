"""What a person types: `distir`, `distir-opt`, and the registry that plugs dialects and passes into xDSL."""
