"""What is said of a program: costs and comparisons, each for people and for programs."""
