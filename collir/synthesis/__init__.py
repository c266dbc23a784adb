"""What search and symmetry find for us: strategies, placements, redistributions."""
