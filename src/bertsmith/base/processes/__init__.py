"""Several processes that train together: what they exchange, what each of them holds, what they must agree on."""
