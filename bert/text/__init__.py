"""From stored records to the micro-batches of an update, and the tokenizer that both ends share."""
