"""What search and symmetry find for us: strategies (later placements, redistributions)."""
