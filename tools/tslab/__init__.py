"""tslab: the laboratory of temporal-slab."""
