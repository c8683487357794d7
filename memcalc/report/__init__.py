"""From an estimate to words: the table that people read, the JSON of the contract, markdown, csv. The only place that makes words."""
