"""Execution traces of Chakra: their messages, and how protobuf writes them."""
