"""The executor of programs of ranks: it finds what only order and memory can get wrong."""
