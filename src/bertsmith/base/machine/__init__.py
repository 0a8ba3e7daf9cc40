"""The machine: devices and precisions, what the processor offers, memory that is freed and needed again."""
