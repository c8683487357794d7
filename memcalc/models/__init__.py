"""From a name to a model: the catalogue, the reader of config.json, and a small file for each family."""
